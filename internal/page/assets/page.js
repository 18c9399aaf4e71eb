// What the server cannot do: follow the fleet, stream output, draw the plot, and the keyboard.
"use strict";

const banner = document.getElementById("banner");

// changed reports whether the person has changed a field since it was rendered.
function changed(field) {
  if (field.matches("option")) return field.selected !== initial(field);
  return field.matches("[type=checkbox], [type=radio]") ? field.checked !== field.defaultChecked
    : field.value !== field.defaultValue;
}

// initial reports whether an option was selected when it was rendered: the first one is if no other was.
function initial(option) {
  const { options, multiple } = option.closest("select");
  return option.defaultSelected ||
    !multiple && option === options[0] && ![...options].some((o) => o.defaultSelected);
}

// busy reports whether a refresh would take away what the person is doing.
function busy(part) {
  return part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select") ||
    [...part.querySelectorAll("input, textarea, option")].some(changed);
}

// content is what a part shows, without how long ago something was.
const content = (part) => part.innerHTML.replaceAll(/<time.*?<\/time>/gs, "");

// refreshPart replaces a part of the page by its newest state, unless the person has changed it in the meantime. Of
// several responses for a part, only that of the last request counts.
const requests = {};
async function refreshPart(old) {
  const id = old.getAttribute("id"), url = old.dataset.refresh; // old.id is a field of that name, if old is a form
  const n = requests[id] = (requests[id] || 0) + 1;
  try {
    const r = await fetch(url, { headers: { "HX-Request": "true" } });
    if (r.status === 401) { location.reload(); return; } // the session is over
    if (!r.ok) return;
    const page = new DOMParser().parseFromString(await r.text(), "text/html");
    const part = document.getElementById(id), newest = page.getElementById(id);
    if (!part || !newest || n !== requests[id] || part.dataset.refresh !== url || busy(part)) return;
    if (content(part) === content(newest)) return;
    part.replaceWith(newest);
    htmx.process(newest);
    stream();
  } catch { /* the banner says so */ }
}

function refresh() {
  for (const part of document.querySelectorAll("[data-refresh]")) {
    if (!busy(part)) refreshPart(part);
  }
}

// follow connects to the stream of changes while the page is visible.
let live = null;
function follow() {
  const url = document.body.dataset.live;
  if (!url || !document.querySelector("[data-refresh]") || document.hidden || live) return;
  live = new EventSource(url);
  live.addEventListener("hello", () => {
    banner.hidden = true;
    refresh(); // something may have changed since the page was rendered
  });
  live.addEventListener("change", refresh);
  live.onerror = () => {
    banner.hidden = false;
    if (live.readyState === EventSource.CLOSED) { // refused, for example because the session is over
      live = null;
      setTimeout(() => { if (!document.hidden) check(); }, 3000);
    }
  };
}

// check loads the page again if the session is over, which leads to the login. Otherwise it follows the changes again.
async function check() {
  try {
    const r = await fetch(location.href, { method: "HEAD", redirect: "manual" });
    if (r.type === "opaqueredirect" || r.status === 401) { location.reload(); return; }
  } catch { /* it does not respond yet */ }
  follow();
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    if (live) live.close();
    live = null;
  } else {
    refresh();
    follow();
  }
});

// stream shows the output of a running task as it arrives. The output is text, never HTML.
let streamed = null;
function stream() {
  const out = document.getElementById("live");
  if (!out || streamed === out.dataset.stream) return;
  streamed = out.dataset.stream;
  const stage = document.getElementById("stage");
  const part = document.getElementById("task");
  part.removeAttribute("data-refresh"); // the stream tells when the task has ended
  out.replaceChildren(); // a stream begins with the first output
  const source = new EventSource(streamed);
  source.addEventListener("progress", (e) => {
    const p = JSON.parse(e.data);
    if (p.stream) {
      const span = document.createElement("span");
      span.className = p.stream;
      span.textContent = p.text;
      out.append(span);
    } else {
      stage.textContent = p.text ? p.stage + ": " + p.text : p.stage;
      if (p.stage === "approval") refreshPart(document.getElementById("pending"));
    }
  });
  source.addEventListener("end", () => {
    source.close();
    part.setAttribute("data-refresh", location.href);
    refreshPart(part);
  });
  source.onerror = () => {
    if (source.readyState !== EventSource.CLOSED) return; // the browser connects again
    streamed = null; // refused, for example because the fleet restarts
    part.setAttribute("data-refresh", location.href);
    setTimeout(async () => { await refreshPart(part); stream(); }, 3000);
  };
}

// plot draws queued and running tasks since the page was opened.
function plot() {
  const box = document.getElementById("plot");
  if (!box || typeof uPlot === "undefined") return;
  const data = [[], [], [], []];
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = { stroke: color("--text"), grid: { stroke: color("--line") } };
  const u = new uPlot({
    width: box.clientWidth, height: 180,
    series: [{}, { label: "queued", stroke: color("--amber") }, { label: "running", stroke: color("--green") },
      { label: "slots", stroke: color("--grey"), dash: [4, 4] }],
    axes: [axis, axis], scales: { y: { range: (_, __, max) => [0, Math.max(max || 0, 1)] } },
  }, data, box);
  let shown, refreshed = 0;
  const sample = async () => {
    if (document.hidden) return;
    try {
      const r = await fetch(box.dataset.numbers);
      if (!r.ok) return;
      const n = await r.json();
      data[0].push(Date.now() / 1000); data[1].push(n.queued); data[2].push(n.running); data[3].push(n.slots);
      if (data[0].length > 1800) for (const d of data) d.shift();
      u.setData(data);
      const now = JSON.stringify(n.shown);
      shown ??= now;
      if (shown !== now && Date.now() - refreshed > 10000) { // the stream of changes is about the tenant's tasks
        shown = now; refreshed = Date.now();
        refresh();
      }
    } catch { /* the banner says so */ }
  };
  sample();
  setInterval(sample, 2000);
  addEventListener("resize", () => u.setSize({ width: box.clientWidth, height: 180 }));
}

// The keyboard: / searches, j and k move in a table, Enter opens, g then a letter goes to a page.
const pages = { t: "tasks", n: "new", i: "inbox", d: "dead", w: "workspaces", s: "sessions", k: "skills", o: "tools", f: "fleet", a: "access" };
let going = false;
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input, textarea, select")) return;
  if (going && pages[e.key]) {
    location.href = document.querySelector(".brand").getAttribute("href").replace(/tasks$/, pages[e.key]);
  }
  going = e.key === "g";
  const links = [...document.querySelectorAll("tbody tr a")];
  const rows = [...new Map(links.map((a) => [a.closest("tr"), a]).reverse()).values()].reverse();
  const at = rows.findIndex((a) => a.closest("tr").contains(document.activeElement));
  if (e.key === "/") {
    const q = document.getElementById("q");
    if (q) { q.focus(); e.preventDefault(); }
  } else if (e.key === "j" && rows.length) rows[Math.min(at + 1, rows.length - 1)].focus();
  else if (e.key === "k" && rows.length) rows[Math.max(at - 1, 0)].focus();
});

const theme = document.getElementById("theme");
if (theme) theme.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
});

follow();
stream();
plot();
