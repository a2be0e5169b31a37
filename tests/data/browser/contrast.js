const parse = c => (c.match(/[\d.]+/g) || []).map(Number);
const part = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
const ground = e => {
  for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] === 1) return c;
  }
  return parse(getComputedStyle(document.body).backgroundColor);
};
const found = [];
for (const e of document.querySelectorAll('body *')) {
  if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
  if (!e.checkVisibility() || e.closest('script, style, title, desc, [hidden]')) continue;
  const style = getComputedStyle(e);
  const a = light(parse(e.closest('svg') ? style.fill : style.color)), b = light(ground(e));
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const name = `${e.tagName} ${e.getAttribute('class')} ${e.textContent.slice(0, 30)}`;
  if (ratio < 4.5) found.push(`${name} ${ratio.toFixed(2)}`);
}
return found.slice(0, 10);
