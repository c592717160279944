"""The command that streams a Windows node's counters: one PowerShell process, started once, one line an interval.

Never run: no Windows machine was available. It uses CIM classes by name, never the counters' localized paths, and
prints whole numbers and escaped ASCII; `read.windows_counters` reads it.
"""

from __future__ import annotations

import base64

from hcilib.read.windows_counters import CLASSES, MARK

LONGEST = 8191
"""Characters of a command line in cmd.exe, the default shell of OpenSSH on Windows."""

_SCRIPT = """
$ErrorActionPreference='Stop'
$ProgressPreference='SilentlyContinue'
$want=@{@WANT@}
function say($x){
  $json=ConvertTo-Json $x -Compress -Depth 5
  $json=[regex]::Replace($json,'[^ -~]',{param($m) '\\u{0:x4}' -f [int][char]$m.Value})
  [Console]::Out.WriteLine('@MARK@'+$json)
  [Console]::Out.Flush()
}
$classes=@{}
foreach($k in $want.Keys){
  $found=@(Get-CimClass -ClassName ('Win32_PerfRawData_*_'+$want[$k][0]) -ErrorAction SilentlyContinue)
  if($found.Count){$classes[$k]=$found[0].CimClassName}
}
$physical=@(Get-NetAdapter -Physical -ErrorAction SilentlyContinue|ForEach-Object{[string]$_.InterfaceDescription})
say @{begin=1;node=$env:COMPUTERNAME;classes=$classes;physical=$physical}
$clock=[Diagnostics.Stopwatch]::StartNew()
$n=0
while($clock.ElapsedMilliseconds -lt @LAST_MS@){
  $line=@{ms=[DateTimeOffset]::UtcNow.ToUnixTimeMilliseconds()}
  $errors=@{}
  foreach($k in $classes.Keys){
    $rows=@{}
    try{
      foreach($o in Get-CimInstance -ClassName $classes[$k]){
        $rows[[string]$o.Name]=@($o.Timestamp_PerfTime,$o.Frequency_PerfTime)+@($want[$k][1]|ForEach-Object{$o.$_})
      }
      $line[$k]=$rows
    }catch{$errors[$k]=[string]$_}
  }
  if($errors.Count){$line.errors=$errors}
  say $line
  $n++
  $wait=$n*@EVERY_MS@-$clock.ElapsedMilliseconds
  if($wait -gt 0){Start-Sleep -Milliseconds $wait}
}
"""


def counters_command(seconds: float, every_s: float = 1.0) -> str:
    """A command line that prints a Windows node's counters every `every_s` and ends by itself after `seconds`.

    -EncodedCommand: the text passes cmd.exe, PowerShell and SSH unquoted. That the process ends by itself is its time
    limit: Windows has no `timeout` that would end it, and OpenSSH does not end it with the channel.

    Raises
    ------
    ValueError
        `seconds` or `every_s` is not a positive number.
    """
    encoded = base64.b64encode(counters_script(seconds, every_s).encode("utf-16-le")).decode()
    return f"powershell.exe -NoLogo -NoProfile -NonInteractive -OutputFormat Text -EncodedCommand {encoded}"


def counters_script(seconds: float, every_s: float = 1.0) -> str:
    """The PowerShell text of `counters_command`, for PowerShell 5.1 and later."""
    for name, value in (("seconds", seconds), ("every_s", every_s)):
        if not 0 < value < 1e7:
            raise ValueError(f"{name} is {value!r}; give a positive number of seconds.")
    wanted = (
        f"{name}=@('{ending}',@({','.join(repr(p) for p in properties)}))"
        for name, (ending, properties) in CLASSES.items()
    )
    values = {
        "WANT": ";".join(wanted),
        "MARK": MARK,
        "LAST_MS": f"{1000 * seconds:.0f}",
        "EVERY_MS": f"{1000 * every_s:.0f}",
    }
    script = _SCRIPT.strip()
    for name, value in values.items():
        script = script.replace(f"@{name}@", value)
    return script
