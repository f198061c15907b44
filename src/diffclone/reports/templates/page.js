"use strict";
(() => {
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const make = (tag, text = "") => Object.assign(document.createElement(tag), { textContent: text });
  const root = document.documentElement;

  // Colours: as the system has them, until the reader chooses.
  const button = document.getElementById("theme"), system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const nameButton = () => { button.textContent = isDark() ? "Light colours" : "Dark colours"; };
  try { root.dataset.theme = localStorage.getItem("diffclone-theme") ?? ""; } catch { root.dataset.theme = ""; }
  if (!root.dataset.theme) delete root.dataset.theme;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("diffclone-theme", root.dataset.theme); } catch { /* a page need not be allowed to store */ }
    nameButton();
  });
  system.addEventListener("change", nameButton);
  nameButton();
  button.hidden = false;

  // Contents: open beside the page, closed above it.
  const contents = document.getElementById("contents"), wide = matchMedia("(min-width: 70rem)");
  const fold = () => { contents.open = wide.matches; };
  wide.addEventListener("change", fold);
  fold();
  contents.addEventListener("click", event => { if (event.target.matches("a") && !wide.matches) contents.open = false; });
  const links = new Map(all("a", contents).map(link => [link.hash.slice(1), link]));
  const watch = new IntersectionObserver(entries => entries.filter(entry => entry.isIntersecting).forEach(entry => {
    links.forEach(link => link.removeAttribute("aria-current"));
    links.get(entry.target.id)?.setAttribute("aria-current", "true");
  }), { rootMargin: "0px 0px -75% 0px" });
  all("main > section").forEach(section => watch.observe(section));

  // A region is a stop of the keyboard only where it scrolls.
  const stops = () => all(".scroll").forEach(region => {
    const scrolls = region.scrollWidth > region.clientWidth + 1 || region.scrollHeight > region.clientHeight + 1;
    scrolls ? region.setAttribute("tabindex", "0") : region.removeAttribute("tabindex");
  });
  addEventListener("resize", stops);
  stops();

  // Sorting: by number where a cell begins with one; cells without a value come last.
  const numeral = text => {
    const found = text.replace(/−/g, "-").replace(/,/g, "").match(/^[<≥≤ ]*([+-]?\d*\.?\d+(?:e[+-]?\d+)?)/i);
    return found ? parseFloat(found[1]) : null;
  };
  const compare = (a, b, sign) => {
    const missing = text => text === "" || text === "–";
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    const x = numeral(a), y = numeral(b);
    return sign * (x !== null && y !== null ? x - y : a.localeCompare(b, "en", { numeric: true }));
  };
  for (const table of all("table[data-sort]")) {
    const heads = all("thead th", table), body = table.tBodies[0];
    heads.forEach((head, column) => {
      if (!head.textContent.trim()) return;
      const sort = make("button");
      sort.type = "button";
      sort.append(...head.childNodes);
      head.append(sort);
      sort.addEventListener("click", () => {
        const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        heads.forEach(other => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
        const text = row => row.cells[column].textContent.trim();
        body.append(...[...body.rows].sort((a, b) => compare(text(a), text(b), sign)));
      });
    });
  }

  // Filters: one choice per column, and words.
  for (const table of all("table[data-filter]")) {
    const form = make("form"), rows = [...table.tBodies[0].rows], count = make("output");
    form.className = "filters";
    form.setAttribute("aria-label", "Filter the table");
    const text = (row, column) => row.cells[column].textContent.trim();
    const field = (name, control) => { const label = make("label", name); label.append(control); form.append(label); return control; };
    const choices = table.dataset.filter.split(",").map(Number).map(column => {
      const select = field(table.tHead.rows[0].cells[column].textContent, make("select"));
      const values = [...new Set(rows.map(row => text(row, column)))].filter(Boolean);
      select.append(new Option("all", ""), ...values.map(value => new Option(value, value)));
      return [column, select];
    });
    const words = field("words", Object.assign(make("input"), { type: "search" }));
    const clear = Object.assign(make("button", "Show all"), { type: "reset" });
    const apply = () => {
      const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of rows) {
        const whole = row.textContent.toLowerCase();
        row.hidden = choices.some(([column, select]) => select.value && text(row, column) !== select.value) || wanted.some(word => !whole.includes(word));
      }
      count.textContent = `${rows.filter(row => !row.hidden).length} of ${rows.length} rows`;
    };
    form.append(clear, count);
    form.addEventListener("input", apply);
    form.addEventListener("reset", () => setTimeout(apply));
    form.addEventListener("submit", event => event.preventDefault());
    table.closest(".scroll").before(form);
    all("a[data-show]").forEach(link => link.addEventListener("click", () => { form.reset(); choices[0][1].value = link.dataset.show; apply(); }));
    apply();
  }

  // A number opens its Record. Without the dialog the link leads to the list of Records.
  const dialog = document.getElementById("shown-record");
  const unfold = () => {
    const target = location.hash.startsWith("#record-") && document.getElementById(location.hash.slice(1));
    if (!target) return;
    for (let at = target; at; at = at.parentElement) if (at.matches("details")) at.open = true;
    all("details", target).forEach(details => { details.open = true; });
    target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();
  dialog && document.addEventListener("click", event => {
    if (event.target === dialog) dialog.close();
    const link = event.target.closest('a[href^="#record-"]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const source = document.querySelector(`${link.hash} > details`).cloneNode(true);
    const summary = source.querySelector("summary");
    dialog.querySelector("h2").textContent = `Record ${link.hash.slice(8)}: ${summary.textContent}`;
    summary.remove();
    dialog.querySelector(".content").replaceChildren(...source.childNodes);
    dialog.showModal();
    dialog.scrollTop = 0;
  });

  // Videos play while the pointer or the focus is on them.
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  for (const video of all("video")) {
    const play = () => { if (!still.matches) video.play().catch(() => {}); };
    ["mouseenter", "focus"].forEach(name => video.addEventListener(name, play));
    ["mouseleave", "blur"].forEach(name => video.addEventListener(name, () => video.pause()));
  }
})();
