"""A Windows node's counters: one PowerShell process, started once a step, one line an interval.

Never run: no Windows machine was available. It uses CIM classes by name, never the counters' localized paths, and
prints whole numbers and escaped ASCII; `read.windows_counters` reads it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

from hcilib.drive.hosts.hosts import Fleet, explain
from hcilib.read.nodes.counters import COLUMNS
from hcilib.read.nodes.windows_counters import CLASSES, MARK, WindowsCountersError, parse_windows_counters

FARTHEST_S = 0.5
"""Seconds a node's clock may differ before it is said (preflight's limit for Linux hosts)."""

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
    for name, text in values.items():
        script = script.replace(f"@{name}@", text)
    return script


@contextlib.contextmanager
def streamed(
    fleet: Fleet, nodes: Sequence[str], folder: Path, every_s: float, limit_s: float
) -> Iterator[list[WindowsStream]]:
    """One counters' process a node while the block runs; what each prints goes to `folder`/counters.<node>.txt as it
    is."""
    streams = [WindowsStream(fleet, node, folder, counters_command(limit_s, every_s)) for node in nodes]
    try:
        yield streams
    finally:
        for stream in streams:
            stream.stop()


class WindowsStream:
    """The process on one node, and what it has printed. It ends when we close the channel, or by its own time limit."""

    def __init__(self, fleet: Fleet, node: str, folder: Path, command: str):
        self.node, self.file, self._error = node, folder / f"counters.{node}.txt", ""
        self._ahead_s: list[float] = []
        self._channel = None
        try:
            self._channel = fleet.session(node, command)
        except Exception as error:  # the step goes on without this node's counters, and says so
            self._error = explain(error)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"counters-{node}")
        self._copied = self._pool.submit(self._copy)

    def _copy(self) -> None:
        left = b""
        with open(self.file, "wb", buffering=0) as file:
            while self._channel and (chunk := self._channel.recv(2**16)):
                file.write(chunk)
                *lines, left = (left + chunk).split(b"\n")
                self._ahead_s += [stamp - time.time() for stamp in map(_stamp, lines) if stamp]

    def stop(self) -> None:
        if self._channel:
            self._channel.close()
        self._pool.shutdown()

    def tables(self) -> tuple[pd.DataFrame, list[str]]:
        """Rows of the counters table on the controller's clock, and a sentence for each thing that is missing or
        doubtful.

        The volumes' counters go to volumes.<node>.csv beside the stream. The node's clock is set by the line that
        came soonest after it was printed: a line can be late, never early.
        """
        self._copied.result()  # a full disk is raised, not swallowed
        empty = pd.DataFrame(columns=list(COLUMNS))
        if self._error:
            return empty, [f"{self.node}: no counters: {self._error}"]
        try:
            counters, volumes = parse_windows_counters(self.file.read_bytes(), self.node)
        except WindowsCountersError as error:
            return empty, [f"{self.node}: no counters: {error}"]
        ahead_s = max(self._ahead_s)
        said = [f"{self.node}: {sentence}" for sentence in counters.attrs["missing"]]
        if abs(ahead_s) > FARTHEST_S:
            said.append(
                f"{self.node}: its clock is {ahead_s:+.1f} s from the controller's; its counters were moved by that"
            )
        volumes.assign(t_s=volumes["t_s"] - ahead_s).to_csv(
            self.file.with_name(f"volumes.{self.node}.csv"), index=False
        )
        return counters.assign(t_s=counters["t_s"] - ahead_s), said


def _stamp(line: bytes) -> float | None:
    """When a sample was printed, by the node's clock, in seconds since the epoch; None for any other line."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return json.loads(line.partition(MARK.encode())[2])["ms"] / 1000
    return None
