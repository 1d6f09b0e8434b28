// What the page's parts share: asking the server, under the key of this tab, and making elements.

// Kept for this tab alone, and gone with it.
const kKey = "stemma-key";
export const setKey = (key) => sessionStorage.setItem(kKey, key);
export const headers = () => {
  const key = sessionStorage.getItem(kKey);
  return key === null ? {} : { authorization: `Bearer ${key}` };
};

export function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className !== "") made.className = className;
  if (text !== "") made.textContent = text;
  return made;
}

export const count = (number) => number.toLocaleString("en", { maximumFractionDigits: 0 });

export function seconds(s) {
  return s < 1 ? `${Math.round(1000 * s)} ms` : s < 100 ? `${s.toFixed(1)} s` : `${Math.round(s)} s`;
}

export class Refused extends Error {
  constructor(status) {
    super(`the server answered ${status}`);
    this.status = status;
  }
}

export async function get(path) {
  const response = await fetch(path, { headers: headers(), cache: "no-store" });
  if (!response.ok) throw new Refused(response.status);
  return response.json();
}

// A bar of parts: [[class, amount], ...] of a whole. With a name it is a picture, without it is hidden from readers.
export function bar(parts, whole, name = "") {
  const made = element("div", "bar");
  if (name === "") made.setAttribute("aria-hidden", "true");
  else {
    made.setAttribute("role", "img");
    made.setAttribute("aria-label", name);
  }
  for (const [className, amount] of parts) {
    if (amount <= 0 || whole <= 0) continue;
    const part = element("i", className);
    part.style.width = `${(100 * amount) / whole}%`;
    made.append(part);
  }
  return made;
}
