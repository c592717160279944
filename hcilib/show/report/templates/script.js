// The whole site's script: theme, code and tables in one go, sorting, filtering, notes that open, figures that answer.
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
  all("#tables", "details.table", "Open all tables", "Close all tables");

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
