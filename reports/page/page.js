"use strict";
// Everything is there without this script; it adds filters, sorting and opened details on paper.
(() => {
  const folded = () => [...document.querySelectorAll("details:not([open])")];
  let opened = [];
  addEventListener("beforeprint", () => { opened = folded(); for (const one of opened) one.open = true; });
  addEventListener("afterprint", () => { for (const one of opened) one.open = false; opened = []; });

  const table = document.getElementById("rows");
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0], rows = [...body.rows];
  const filters = document.getElementById("filters"), shown = document.getElementById("shown");
  const fields = [...filters.querySelectorAll("select, input")];
  const words = new Intl.Collator("en", { numeric: true });
  const keys = heads.map((head) => head.dataset.key);
  let order = [];  // keys of columns, the one that counts most last; "-" before one that falls
  let facts = null;  // what filters ask, read once and only when somebody asks

  const read = (row) => Object.assign({ text: row.textContent.toLowerCase() }, ...fields.map(({ name }) => {
    const at = keys.indexOf(name);
    return name === "text" ? {} : { [name]: name in row.dataset ? row.dataset[name] : row.cells[at].textContent };
  }));
  const value = (row, at) => {
    const cell = row.cells[at], given = cell.dataset.v === undefined ? cell.textContent : cell.dataset.v;
    return heads[at].dataset.n === undefined ? given : parseFloat(given);
  };

  const sorted = () => order.reduce((found, key) => {
    const falls = key[0] === "-", at = keys.indexOf(falls ? key.slice(1) : key), number = heads[at].dataset.n !== undefined;
    const pairs = found.map((row) => [value(row, at), row]);
    pairs.sort(([a], [b]) => {
      if (!number) return falls ? words.compare(b, a) : words.compare(a, b);
      if (isNaN(a) || isNaN(b)) return isNaN(a) - isNaN(b);
      return a === b ? 0 : (a < b) === falls ? 1 : -1;
    });
    return pairs.map(([, row]) => row);
  }, rows);

  const arrange = () => {
    body.append(...sorted());
    const last = order[order.length - 1] || "";
    heads.forEach((head, at) => {
      if (last.replace(/^-/, "") === keys[at]) head.setAttribute("aria-sort", last[0] === "-" ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  };

  const filter = () => {
    const asked = fields.filter((field) => field.value);
    const wanted = asked.filter((field) => field.name !== "text");
    const sought = asked.filter((field) => field.name === "text").flatMap((field) => field.value.toLowerCase().split(/\s+/));
    if (asked.length && !facts) facts = rows.map(read);
    let count = 0;
    rows.forEach((row, at) => {
      row.hidden = wanted.some((one) => facts[at][one.name] !== one.value) || sought.some((word) => !facts[at].text.includes(word));
      count += !row.hidden;
    });
    const told = asked.map((field) => `${field.name} ${field.value}`).join(", ");
    shown.textContent = `${count} of ${rows.length} trials shown${told && `: ${told}`}`;
  };

  const state = () => {
    const found = new URLSearchParams(fields.filter((field) => field.value).map((field) => [field.name, field.value]));
    if (order.length) found.set("sort", order.join(","));
    return `#?${found}`;
  };
  const keep = () => { if (location.hash !== state()) location.replace(state()); };

  const restore = () => {
    if (!location.hash.startsWith("#?")) return show();
    if (location.hash === state()) return;
    const found = new URLSearchParams(location.hash.slice(2));
    for (const field of fields) {
      field.value = found.get(field.name) || "";
      if (field.selectedIndex === -1) field.value = "";
    }
    order = (found.get("sort") || "").split(",").filter((key) => keys.includes(key.replace(/^-/, "")));
    arrange();
    filter();
  };

  // A link to a row that is filtered out shows all rows again.
  const show = () => {
    let id = location.hash.slice(1);
    try { id = decodeURIComponent(id); } catch { return; }
    const row = rows.find((one) => one.id === id);
    if (!row || !row.hidden) return;
    for (const field of fields) field.value = "";
    filter();
    row.scrollIntoView();
  };

  const turn = (key) => {
    const last = order[order.length - 1];
    const others = order.filter((one) => one.replace(/^-/, "") !== key);
    order = last === key ? [...others, `-${key}`] : last === `-${key}` ? others : [...others, key].slice(-3);
    arrange();
    keep();
  };

  for (const head of heads) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => turn(head.dataset.key));
    head.append(button);
  }
  filters.addEventListener("input", () => { filter(); keep(); });
  document.getElementById("reset").addEventListener("click", () => {
    for (const field of fields) field.value = "";
    order = [];
    arrange();
    filter();
    keep();
  });
  addEventListener("hashchange", restore);
  filters.hidden = shown.hidden = false;
  filter();
  restore();
})();
