// The cached prefixes as a tree that a keyboard and a screen reader can walk (the tree pattern of WAI-ARIA). It is made
// anew with each answer of the server; what is folded, chosen and focused stays, by the nodes' names.

import { count, element, get } from "./parts.js";

const tree = document.getElementById("tree");
const folded = new Set();
const kHottest = 5;
let active = ""; // the node that Tab reaches
let chosen = "";

// Host memory has its own tree. Of it only what the device has not is shown, below the device's node that it goes on from.
function place(nodes) {
  const by_name = new Map(nodes.map((node) => [node.id, node]));
  const shown = [];
  for (const node of nodes) {
    if (node.tier === "device") shown.push({ ...node, own: node.tokens, below: node.parent });
    else if (node.twin_tokens < node.tokens) {
      const parent = by_name.get(node.parent);
      const part = node.twin_tokens > 0 || parent === undefined || parent.twin_tokens >= parent.tokens;
      shown.push({ ...node, own: node.tokens - node.twin_tokens, below: part ? node.twin : node.parent });
    }
  }
  return shown;
}

function facts(node, many) {
  const text = [`${count(node.own)} tokens`, node.hits === 1 ? "1 hit" : `${count(node.hits)} hits`];
  if (node.lock_count > 0) text.push("in use");
  if (node.quarantined) text.push("in quarantine");
  if (many && node.start_tokens === 0) text.push(`namespace ${node.namespace}`);
  return text.join(" · ");
}

function line(node, context, hasChildren) {
  const made = element("div", "line");
  const fold = element("span", "fold", hasChildren ? (folded.has(node.id) ? "▸" : "▾") : "·");
  fold.setAttribute("aria-hidden", "true");
  const room = element("span");
  room.setAttribute("aria-hidden", "true");
  const stretch = element("span", "stretch");
  stretch.style.width = `${Math.max(2, 100 * Math.sqrt(node.own / context.most))}%`;
  const twin = node.tier === "device" ? node.twin_tokens : 0;
  // What has a copy in host memory shows by a seam of its colour, up to a quarter of the bar.
  const seam = (25 * twin) / node.own;
  for (const [kind, width] of [[node.tier, 100 - seam], ["host", seam]]) {
    const part = element("i", kind);
    part.style.width = `${width}%`;
    if (width > 0) stretch.append(part);
  }
  room.append(stretch);
  made.append(fold, room, element("span", "facts", facts(node, context.many)));
  return made;
}

function item(node, level, context) {
  const made = element("li");
  const children = context.children.get(node.id) ?? [];
  made.setAttribute("role", "treeitem");
  made.setAttribute("aria-level", level);
  made.setAttribute("aria-selected", node.id === chosen);
  made.setAttribute("aria-label", `${node.tier === "device" ? "Device" : "Host memory"}: ${facts(node, context.many)}` +
    `${node.tier === "device" && node.twin_tokens > 0 ? ", also in host memory" : ""}${context.hot.has(node.id) ? ", hot" : ""}`);
  if (children.length > 0) made.setAttribute("aria-expanded", !folded.has(node.id));
  made.dataset.node = node.id;
  made.tabIndex = node.id === active ? 0 : -1;
  if (context.hot.has(node.id)) made.classList.add("hot");
  if (node.quarantined) made.classList.add("gone");
  made.append(line(node, context, children.length > 0));
  if (children.length > 0 && !folded.has(node.id)) {
    const group = element("ul");
    group.setAttribute("role", "group");
    group.append(...children.map((child) => item(child, level + 1, context)));
    made.append(group);
  }
  return made;
}

// The nodes of the paths that were found most often.
function hottest(shown) {
  const by_name = new Map(shown.map((node) => [node.id, node]));
  const ends = shown.filter((node) => node.hits > 0).sort((a, b) => b.hits - a.hits || b.start_tokens - a.start_tokens).slice(0, kHottest);
  const hot = new Set();
  for (let node of ends) for (; node !== undefined; node = by_name.get(node.below)) hot.add(node.id);
  return hot;
}

let drawn = "";
export function showTree(answer) {
  const text = JSON.stringify([answer, [...folded], chosen]);
  if (text === drawn) return; // nothing has changed: a reader is not disturbed
  drawn = text;
  const shown = place(answer.nodes);
  const names = new Set(shown.map((node) => node.id));
  const children = new Map();
  const roots = [];
  for (const node of shown) {
    if (!names.has(node.below)) roots.push(node);
    else children.set(node.below, [...(children.get(node.below) ?? []), node]);
  }
  if (!names.has(active)) active = roots.length > 0 ? roots[0].id : "";
  const context = { children, hot: hottest(shown), most: Math.max(1, ...shown.map((node) => node.own)), many: new Set(shown.map((node) => node.namespace)).size > 1 };
  const focused = tree.contains(document.activeElement);
  const at = tree.scrollTop;
  tree.replaceChildren(...roots.map((node) => item(node, 1, context)));
  tree.scrollTop = at;
  if (focused) itemOf(active)?.focus({ preventScroll: true });
  const all = answer.total_nodes.device + answer.total_nodes.host;
  const more = roots.length === 0 ? "Nothing is cached yet: ask something." : answer.nodes.length < all ? `The hottest ${count(answer.nodes.length)} of ${count(all)} nodes.` : "";
  document.getElementById("tree-more").textContent = more;
}

const items = () => [...tree.querySelectorAll('[role="treeitem"]')];
const itemOf = (name) => items().find((each) => each.dataset.node === name);

const moveTo = (target) => target?.focus();

// However a node came to have the focus (a key, a click, a screen reader): Tab comes back to it.
tree.addEventListener("focusin", (event) => {
  const here = event.target.closest('[role="treeitem"]');
  if (here === null || here.dataset.node === active) return;
  const before = itemOf(active);
  if (before !== undefined) before.tabIndex = -1;
  active = here.dataset.node;
  here.tabIndex = 0;
});

let answered = null; // the last one, to draw again when something is folded
async function fold(name, shut) {
  if (shut) folded.add(name);
  else folded.delete(name);
  answered = await get("/v1/cache/tree?nodes=200").catch(() => null);
  if (answered !== null) showTree(answered);
}

const above = (node) => node.parentElement.closest('[role="treeitem"]');

function onKey(event) {
  const here = event.target.closest('[role="treeitem"]');
  if (here === null || event.altKey || event.ctrlKey || event.metaKey) return;
  const all = items();
  const at = all.indexOf(here);
  const open = here.getAttribute("aria-expanded");
  const verbs = {
    ArrowDown: () => moveTo(all[at + 1]),
    ArrowUp: () => moveTo(all[at - 1]),
    Home: () => moveTo(all[0]),
    End: () => moveTo(all.at(-1)),
    ArrowRight: () => (open === "false" ? fold(here.dataset.node, false) : open === "true" ? moveTo(all[at + 1]) : null),
    ArrowLeft: () => (open === "true" ? fold(here.dataset.node, true) : moveTo(above(here))),
    Enter: () => showNode(here.dataset.node),
    " ": () => showNode(here.dataset.node),
  };
  if (verbs[event.key] === undefined) return;
  event.preventDefault();
  verbs[event.key]();
}

export async function showNode(name) {
  const panel = document.getElementById("node");
  chosen = name ?? "";
  for (const each of items()) each.setAttribute("aria-selected", each.dataset.node === chosen);
  panel.hidden = name === null;
  if (name === null) return;
  const words = document.getElementById("node-text");
  try {
    const node = await get(`/v1/cache/tree/${name}`);
    document.getElementById("node-facts").textContent =
      `${count(node.tokens)} tokens, after ${count(node.start_tokens)} that it continues · namespace ${node.namespace}`;
    words.replaceChildren(element("span", "before", node.text_before), node.text);
  } catch {
    document.getElementById("node-facts").textContent = "This node is gone, or its text is not for this key.";
    words.replaceChildren();
  }
  panel.focus();
}

tree.addEventListener("keydown", onKey);
tree.addEventListener("click", (event) => {
  const here = event.target.closest('[role="treeitem"]');
  if (here === null) return;
  moveTo(here);
  if (event.target.closest(".fold") !== null && here.hasAttribute("aria-expanded")) return fold(here.dataset.node, here.getAttribute("aria-expanded") === "true");
  showNode(here.dataset.node);
});
document.getElementById("node-close").addEventListener("click", () => {
  showNode(null);
  itemOf(active)?.focus();
});
