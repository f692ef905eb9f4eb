// Rows by a click on the map or by words; the threshold of a label.
const rows = DATA.datasets.rows;
const element = (tag, text, kind) => Object.assign(document.createElement(tag), {textContent: text, className: kind || ""});

function card(row, more) {
  const box = element("div", "", "card");
  if (row.image) box.append(Object.assign(document.createElement("img"), {src: row.image, alt: row.labels}));
  if (row.text) box.append(element("p", row.text));
  box.append(element("p", `labels: ${row.labels}`, "soft"), ...more.map((line) => element("p", line, "soft")));
  return box;
}

function show(row) {
  const best = row.best.map(([name, p]) => `${name} ${p.toFixed(2)}`).join(", ");
  const near = row.near.map(([key, alike]) =>
    card(DATA.examples[key], [`${DATA.examples[key].place}, similarity ${alike.toFixed(3)}`]));
  const list = element("div", "", "cards");
  list.append(...near);
  document.getElementById("row").replaceChildren(
    card(row, [`predicted: ${row.predicted}`, `most probable: ${best}`, row.place]),
    ...(near.length ? [element("h3", "The nearest training examples"), list] : []));
}

const words = (row) => `${row.place} ${row.text || ""} ${row.labels} ${row.predicted}`.toLowerCase();
document.getElementById("search").oninput = (event) => {
  const wanted = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = wanted.length ? rows.filter((row) => wanted.every((word) => words(row).includes(word))) : [];
  const asWritten = (row) => words(row).includes(wanted.join(" ")); // these come first
  found.sort((a, b) => asWritten(b) - asWritten(a));
  const list = document.getElementById("found");
  document.getElementById("count").textContent = wanted.length ? `${found.length} rows` : "";
  list.replaceChildren(...found.slice(0, 8).map((row) => {
    const item = document.createElement("li");
    const button = element("button", `${row.place}: ${(row.text || row.labels).slice(0, 110)}`);
    button.onclick = () => show(row);
    item.append(button);
    return item;
  }));
  if (found.length) show(found[0]);
};

function wire() {
  views.map.addSignalListener("picked", (name, value) => {
    const id = value.id && value.id[0];
    const row = rows.find((one) => one.id === id);
    if (row) show(row);
  });
  if (!views.threshold) return;
  const tell = () => {
    const label = views.threshold.signal("label"), at = views.threshold.signal("threshold");
    const {tp, fp, rows: positive} = DATA.datasets.curves[label], step = Math.round(at * (tp.length - 1));
    const [right, given] = [tp[step], tp[step] + fp[step]];
    const share = (a, b) => (b ? (a / b).toFixed(3) : "not defined");
    document.getElementById("at").textContent =
      `${DATA.labelNames[label]} at ${at.toFixed(2)}: precision ${share(right, given)}, recall ${share(right, positive)}, ` +
      `F1 ${share(2 * right, given + positive)}; ${given} rows given, ${positive} have it ` +
      `(its own threshold: ${DATA.thresholds[label].toFixed(3)})`;
  };
  views.threshold.addSignalListener("label", (name, label) => {
    views.threshold.signal("threshold", Math.round(DATA.thresholds[label] * 100) / 100).runAsync().then(tell);
    views.reliability.signal("label", label).runAsync();
  });
  views.threshold.addSignalListener("threshold", tell);
  views.reliability.signal("label", views.threshold.signal("label")).runAsync();
  tell();
}
