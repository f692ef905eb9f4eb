// Glue: charts from their descriptions, tables that sort. What a chart does when it is used stands in its description.
const DATA = JSON.parse(document.getElementById("data").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const views = {};
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function theme() {
  const [text, soft, line] = ["--text", "--soft", "--line"].map(colour);
  const words = {labelColor: text, titleColor: text, labelFontSize: 12, titleFontSize: 12};
  return {background: "transparent", font: "system-ui, sans-serif", view: {stroke: line}, text: {color: text},
    axis: {...words, gridColor: line, domainColor: soft, tickColor: soft, gridOpacity: 0.6}, legend: words,
    title: {color: text, fontSize: 14, anchor: "start", offset: 12}};
}

function broken(title, width) { // Vega draws titles on one line: here are as many as the width asks for
  const lines = [""];
  for (const word of title.split(" ")) {
    const line = lines.length - 1;
    if ((lines[line] + word).length * 8 > width - 50) lines.push(word + " ");
    else lines[line] += word + " ";
  }
  return lines.map((line) => line.trim());
}

async function draw() {
  for (const box of document.querySelectorAll("[data-chart]")) {
    const name = box.dataset.chart, stated = DATA.charts[name], text = JSON.stringify(stated);
    const used = Object.entries(DATA.datasets).filter(([key]) => text.includes(`"name":"${key}"`));
    const spec = {...stated, datasets: Object.fromEntries(used), title: broken(stated.title, box.clientWidth)};
    const chosen = views[name] && Object.fromEntries((stated.params || []).filter((one) => "value" in one).map(
      (one) => [one.name, views[name].signal(one.name)]));
    views[name]?.finalize();
    const actions = {export: true, source: false, compiled: false, editor: false};
    const options = {actions, config: theme(), renderer: name === "map" ? "canvas" : "svg",
      tooltip: {theme: dark.matches ? "dark" : "light"}};
    try {
      views[name] = (await vegaEmbed(box, spec, options)).view;
    } catch (error) { // the other charts are drawn all the same
      delete views[name];
      console.error(`${name}: ${error}`);
      continue;
    }
    for (const [key, value] of Object.entries(chosen || {})) views[name].signal(key, value);
    await views[name].runAsync();
  }
  if (typeof wire === "function") wire();
  document.documentElement.dataset.drawn = dark.matches ? "dark" : "light";
}

for (const heading of document.querySelectorAll("table.sortable thead tr:last-child th")) {
  const button = document.createElement("button");
  button.append(...heading.childNodes);
  heading.append(button);
  button.onclick = () => {
    const body = heading.closest("table").tBodies[0], column = heading.cellIndex;
    const down = heading.ariaSort === "ascending" || (heading.ariaSort !== "descending" && heading.dataset.first === "down");
    for (const other of heading.parentNode.children) other.ariaSort = null;
    heading.ariaSort = down ? "descending" : "ascending";
    const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
    const order = (a, b) => (a === "") - (b === "") || (down ? -1 : 1) *
      (isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b); // empty cells last, whatever the direction
    body.append(...[...body.rows].sort((a, b) => order(value(a), value(b))));
  };
}
dark.addEventListener("change", draw);
