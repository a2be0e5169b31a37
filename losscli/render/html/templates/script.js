"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const get = (id) => document.getElementById(id);
  document.documentElement.classList.add("js");

  // Sorting: figures by their value in SI units, words by the alphabet, empty cells last.
  const units = { ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };
  const value = (text) => {
    const found = /^[=?✓✗!]?\s*(-?[\d,]*\.?\d+(?:e[-+]?\d+)?)[x%]?(?:-[\d.]+)?\s*([a-zA-Z]*)/.exec(text);
    return found ? parseFloat(found[1].replaceAll(",", "")) * (units[found[2]] ?? 1) : NaN;
  };
  const sort = (head, index, body) => {
    const down = head.getAttribute("aria-sort") === "ascending";
    all("th[aria-sort]", head.parentNode).forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows].map((row) => {
      const text = row.cells[index]?.textContent.trim() ?? "";
      return { row, text, figure: value(text) };
    });
    const known = rows.filter((each) => each.text);
    const figures = known.every((each) => !isNaN(each.figure));
    known.sort((a, b) => (figures ? a.figure - b.figure : a.text.localeCompare(b.text, "en", { numeric: true })));
    if (down) known.reverse();
    body.append(...known.map((each) => each.row), ...rows.filter((each) => !each.text).map((each) => each.row));
  };
  for (const table of all("table")) {
    if (table.tBodies[0].rows.length < 3 || table.matches(".facts")) continue;
    all("thead th", table).forEach((head, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.onclick = () => sort(head, index, table.tBodies[0]);
      head.append(button);
    });
  }

  // The page names a case once; each row has it, so that rows can be sorted and hidden.
  for (const table of all("table.f")) {
    let name = "";
    for (const row of table.tBodies[0].rows) name = row.cells[0].textContent ||= name;
  }

  // Filtering: a row of a full table stays if it has all words, in any case.
  const query = get("q");
  const entries = all("table.f tbody tr").map((element) => ({
    element,
    text: [...element.cells].map((cell) => cell.textContent).join(" ").toLowerCase(),
  }));
  const filter = () => {
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    let rows = 0;
    for (const { element, text } of entries) {
      element.hidden = !words.every((word) => text.includes(word));
      if (!element.hidden) rows++;
    }
    get("n").textContent = words.length ? `${rows} of ${entries.length} rows` : "";
  };
  if (!entries.length) {
    query.parentNode.hidden = true;
    document.querySelector(".bar").hidden = !document.querySelector(".impl");
  }
  query.oninput = filter;
  document.querySelector("form").onsubmit = () => false;
  filter();

  // Hovering: the words of a mark, at once and also by touch. A path's title has those of its marks.
  const tip = get("tip");
  const words = new WeakMap();
  for (const title of all(".line > title, .dots > title")) {
    const path = title.parentNode;
    const [name, ...labels] = title.textContent.split("\n");
    path.getAttribute("d").match(/[\d.]+,[\d.]+/g).forEach((place, index) => {
      const mark = document.createElementNS(path.namespaceURI, "circle");
      [mark.cx.baseVal.value, mark.cy.baseVal.value] = place.split(",");
      mark.setAttribute("class", "hit");
      words.set(mark, labels.length ? `${name}, ${labels[index] ?? labels[0]}` : name);
      path.parentNode.append(mark);
    });
    words.set(path, name);
    title.remove();
  }
  document.addEventListener("pointerover", (event) => {
    const mark = event.target.closest?.("svg [class]");
    const title = mark?.querySelector(":scope > title");
    if (title) {
      words.set(mark, title.textContent);
      title.remove();
    }
    const text = mark && words.get(mark);
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const { clientX: x, clientY: y } = event;
    tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + tip.offsetHeight + 28 > innerHeight ? y - tip.offsetHeight - 10 : y + 16}px`;
  });

  // The samples, decompressed where they are asked for.
  const { runs } = JSON.parse(get("data").textContent);
  const benches = runs.filter((run) => run.samples && run.samples.data);
  const save = get("save");
  save.hidden = !benches.length || typeof DecompressionStream === "undefined";
  const unpacked = (data) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")));
  };
  const samples = async (run) => {
    const rows = await unpacked(run.rows.data).json();
    const bytes = new Uint8Array(await unpacked(run.samples.data).arrayBuffer());
    const high = bytes.subarray(bytes.length / 2);
    let at = 0;
    return rows.flatMap(([number, pass, implementation, , median], row) =>
      Array.from({ length: run.samples.counts[row] }, () => {
        const seconds = median * Math.exp(((high[at] << 24 >> 16) | bytes[at++]) / 2048);
        return [run.name, run.cases[number], pass, run.implementations[implementation], seconds.toPrecision(6)];
      }));
  };
  save.onclick = async () => {
    const rows = [["run", "case", "pass", "implementation", "seconds"], ...(await Promise.all(benches.map(samples))).flat()];
    const text = rows.map((row) => row.map((cell) => `"${String(cell).replaceAll('"', '""')}"`).join(",")).join("\n");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = "samples.csv";
    link.click();
  };
})();
