// The whole site's script: the reader's own mix, theme, code and tables in one go, sorting, filtering, notes that open, figures that answer.
(() => {
  const $ = (s, e = document) => e.querySelector(s), $$ = (s, e = document) => [...e.querySelectorAll(s)];
  const root = document.documentElement;
  const make = (tag, props = {}, ...inside) => { const e = Object.assign(document.createElement(tag), props); e.append(...inside); return e; };

  // dark and light
  const theme = $("#theme");
  const said = () => { if (theme) { const dark = root.dataset.theme === "dark"; theme.setAttribute("aria-pressed", dark); theme.textContent = dark ? "Light" : "Dark"; } };
  if (!root.dataset.theme) root.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", e => { let own; try { own = localStorage.theme; } catch {} if (!own) { root.dataset.theme = e.matches ? "dark" : "light"; said(); } });
  theme?.addEventListener("click", () => { root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark"; try { localStorage.theme = root.dataset.theme; } catch {} said(); });
  said();

  // one switch for all code, one for all tables
  const all = (id, what, show, hide, bare) => {
    const button = $(id);
    button?.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", on); button.textContent = on ? hide : show;
      if (bare) document.body.classList.toggle("with-code", on);
      $$(what).forEach(d => { d.open = on; });
    });
  };
  all("#code", "details.code", "Show code", "Hide code", true);
  all("#tables", "details.table, details.more", "Open all tables", "Close all tables");

  // the reader's own mix: the order of systems in each strip, kept in the address
  const mix = $("#mix");
  const between = (points, reads) => {
    const i = Math.max(1, points.findIndex(([share]) => share >= reads)), [[a, x, below], [b, y, above]] = [points[i - 1], points[i]];
    const depths = reads === a ? [below] : reads === b ? [above] : [...new Set([below, above])].sort((p, q) => p - q);
    return { iops: reads === a ? x : reads === b ? y : 1 / (1 / x + (1 / y - 1 / x) * (reads - a) / (b - a)), depth: depths.join(" to ") };
  };
  const order = (systems, reads, load) => {
    const found = Object.entries(systems).map(([name, loads]) => ({ name, ...between(loads[load], reads) })).sort((a, b) => b.iops - a.iops);
    return found.map(f => ({ ...f, share: 100 * f.iops / found[0].iops }));
  };
  const count = iops => Math.round(iops).toLocaleString("en");
  const lead = ([a, b], proof, label) => {
    const head = `${label(a.name)} delivers ${count(a.iops)} IOPS at iodepth ${a.depth}`;
    const ends = proof.lo ? `, 95 % interval ${proof.lo.toFixed(2)} to ${proof.hi.toFixed(2)}` : "";
    return b ? `${head}, ${(a.iops / b.iops).toFixed(2)} times the ${count(b.iops)} of ${label(b.name)} (iodepth ${b.depth}${ends}).` : `${head}.`;
  };
  const kept = (two, label, layout) => {
    const each = two.filter(r => layout(r.name)).map(r => `${label(r.name)} keeps its data as ${layout(r.name)}`);
    return each.length ? ` ${each.join(", ")}.` : "";
  };
  const rerank = () => {
    const [reads, size, load] = [+mix.reads.value, mix.size.value, mix.load.value];
    mix.querySelector("output").textContent = reads + " %";
    for (const strip of $$(".strip")) {
      const row = $(".own", strip), [all, proofs] = [".rates", ".proofs"].map(s => JSON.parse($(s, strip)?.textContent || "{}"));
      if (!row) continue;
      const ranked = all[size] ? order(all[size], reads, load) : [];
      const place = name => ranked.findIndex(r => r.name === name);
      const other = all[size] ? order(all[size], reads, load === "light" ? "heavy" : "light") : [];
      const proof = proofs[size]?.[load]?.[reads] ?? { said: mix.dataset.calculated, tested: false };
      const system = name => $(`.system[data-system="${CSS.escape(name)}"]`, strip), label = name => system(name).textContent;
      const same = ranked.length && ranked.every((r, i) => r.iops === other[i].iops) ? " " + mix.dataset.same : "";
      $(".what", row).textContent = `Your mix: ${size} ${reads}/${100 - reads}, ${load}`;
      const told = () => `${lead(ranked, proof, label)} ${proof.said}${same}${kept(ranked.slice(0, 2), label, name => system(name).dataset.layout)}`;
      $(".sure", row).textContent = ranked.length ? told() : "";
      $$(".at", row).forEach(at => { const r = ranked[place(at.dataset.system)]; at.hidden = !r; if (r) { at.firstElementChild.style.left = r.share.toFixed(1) + "%"; at.firstElementChild.className = proof.tested ? "" : "open"; } });
      $(".best", row).replaceChildren(...(ranked.length ? [label(ranked[0].name) + " ", make("b", { textContent: count(ranked[0].iops) })] : ["not measured"]));
      const legend = $(".legend", strip), last = ranked.length;
      legend.append(...$$(".system", legend).sort((a, b) => (place(a.dataset.system) + 1 || last + 1) - (place(b.dataset.system) + 1 || last + 1)).flatMap(e => [e, " "]));
    }
  };
  const recall = () => {
    for (const part of location.hash.replace(/^#mix=/, "").split(",")) {
      const [name, value] = part.split(":");
      if (["reads", "size", "load"].includes(name) && value) mix[name].value = value;
    }
    rerank();
  };
  if (mix) {
    mix.hidden = false;
    mix.addEventListener("input", () => { rerank(); history.replaceState(null, "", `#mix=reads:${mix.reads.value},size:${mix.size.value},load:${mix.load.value}`); });
    mix.addEventListener("submit", e => e.preventDefault());
    addEventListener("hashchange", recall);
    recall();
  }

  // what leads from page to page
  const name = document.body.dataset.name, story = (window.SITE || []).find(s => s.pages.some(p => p.name === name));
  if (story) {
    const at = story.pages.findIndex(p => p.name === name), here = story.pages[at];
    const link = (p, text) => make("a", { href: "../" + encodeURI(p.page), textContent: text || p.role });
    $("#story").append(make("a", { href: "../" + story.path, textContent: story.short }), " · " + here.role);
    const around = $("#around");
    if (at > 0) around.append(make("p", { className: "previous" }, "← ", link(story.pages[at - 1])));
    if (at + 1 < story.pages.length) around.append(make("p", { className: "next" }, link(story.pages[at + 1]), " →"));
    const list = (title, pages) => pages.length && around.append(make("p", { className: "quiet" }, title + ": ", ...pages.flatMap((p, i) => [i ? " · " : "", p.name === name ? p.role : link(p)])));
    list(story.short, story.pages);
    const others = window.SITE.flatMap(s => s.pages.filter(p => s !== story && p.systems.some(x => here.systems.includes(x))));
    list("The same system elsewhere", others);
  }

  // tables: sort by a click on a head, filter by a word where there are many rows
  const number = t => { const m = t.replace(/,/g, "").match(/-?\d+(\.\d+)?(e[+-]?\d+)?/); return m ? +m[0] : NaN; };
  for (const table of $$("table.hci")) {
    const body = table.tBodies[0], rows = [...body.rows];
    if (rows.length < 2) continue;
    $$("thead th", table).forEach((th, column) => {
      const button = make("button", { type: "button", className: "sort" }, ...th.childNodes);
      th.append(button);
      button.addEventListener("click", () => {
        const down = th.getAttribute("aria-sort") === "ascending";
        $$("th", table.tHead).forEach(o => o.removeAttribute("aria-sort"));
        th.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = r => r.cells[column]?.textContent.trim() ?? "";
        const numeric = th.dataset.kind === "number";
        const sorted = [...rows].sort((a, b) => {
          if (!numeric) return key(a).localeCompare(key(b), "en", { numeric: true });
          const [x, y] = [number(key(a)), number(key(b))];
          return isNaN(x) ? (isNaN(y) ? 0 : 1) : isNaN(y) ? -1 : down ? y - x : x - y;
        });
        body.append(...(down && !numeric ? sorted.reverse() : sorted));
      });
    });
    if (rows.length > 12) {
      const field = make("input", { type: "search", placeholder: "filter rows" });
      field.setAttribute("aria-label", "Filter the rows of this table");
      field.addEventListener("input", () => { const w = field.value.toLowerCase(), more = $("details.more", table.closest("details")); if (w && more) more.open = true; rows.forEach(r => { r.hidden = !r.textContent.toLowerCase().includes(w); }); });
      table.closest(".scroll")?.before(make("p", { className: "filter" }, field));
    }
    // a row's own sentence opens below it
    for (const row of rows) if (row.dataset.note) {
      const mark = make("button", { type: "button", className: "note", textContent: "?" });
      mark.setAttribute("aria-label", "Sentence of this row"); mark.setAttribute("aria-expanded", "false");
      mark.addEventListener("click", () => {
        const open = mark.getAttribute("aria-expanded") === "true";
        mark.setAttribute("aria-expanded", !open);
        if (open) { row.nextElementSibling.remove(); return; }
        const cell = make("td", { colSpan: row.cells.length, textContent: row.dataset.note });
        row.after(make("tr", { className: "said" }, cell));
      });
      row.cells[row.cells.length - 1].append(" ", mark);
    }
  }

  // figures: a mark says its value, a click on a system dims the others
  const tip = make("div", { className: "tip", role: "status", hidden: true });
  document.body.append(tip);
  for (const figure of $$("figure")) {
    const groups = [], drawings = $$(".drawing svg", figure);
    const dim = system => {
      const again = figure.dataset.only === system || !system;
      figure.dataset.only = again ? "" : system;
      groups.forEach(g => g.classList.toggle("dim", !again && g.dataset.system !== system));
    };
    for (const svg of drawings) {
      let known = {};
      try { known = JSON.parse(svg.dataset.tips || drawings[0].dataset.tips || "{}"); } catch {}
      for (const [id, { s, t }] of Object.entries(known)) {
        const group = svg.querySelector(`[id="${id}"]`);
        if (!group) continue;
        group.dataset.system = s; groups.push(group);
        const marks = $$("use", group).length ? $$("use", group) : $$("path", group);
        if (t) marks.forEach((mark, i) => { if (t[i]) mark.dataset.tip = (s ? s + "\n" : "") + t[i]; });
      }
      svg.addEventListener("pointermove", e => {
        const mark = e.target.closest("[data-tip]");
        tip.hidden = !mark;
        if (!mark) return;
        tip.textContent = mark.dataset.tip;
        tip.style.left = Math.min(e.clientX + 12, innerWidth - tip.offsetWidth - 8) + "px";
        tip.style.top = e.clientY + 14 + "px";
      });
      svg.addEventListener("pointerleave", () => { tip.hidden = true; });
      svg.addEventListener("click", e => dim(e.target.closest("[data-system]")?.dataset.system));
    }
    const names = [...new Set(groups.map(g => g.dataset.system).filter(Boolean))];
    if (names.length > 1 && !document.body.classList.contains("story")) {
      const row = make("p", { className: "only" }, "Show alone: ");
      for (const system of names) {
        const button = make("button", { type: "button", textContent: system });
        button.addEventListener("click", () => { dim(system); $$("button", row).forEach(b => b.setAttribute("aria-pressed", figure.dataset.only === b.textContent)); });
        button.setAttribute("aria-pressed", "false");
        row.append(button, " ");
      }
      drawings[drawings.length - 1].closest(".drawing").after(row);
    }
  }
})();
