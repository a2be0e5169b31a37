document.querySelectorAll('details').forEach(each => each.open = true);
const found = [];
for (const svg of document.querySelectorAll('svg[role=img]')) {
  const name = svg.querySelector('title').textContent, view = svg.viewBox.baseVal;
  const frames = [...svg.querySelectorAll('use')].map(e => document.querySelector(e.getAttribute('href')));
  const texts = [svg, ...frames].flatMap(e => [...e.querySelectorAll('text')]).map(e => [e.textContent, e.getBBox()]);
  texts.forEach(([words, a], index) => {
    const out = a.x < -1 || a.x + a.width > view.width + 1 || a.y + a.height > view.height + 3;
    if (out) found.push(`${name}: ${words} is outside`);
    for (const [others, b] of texts.slice(index + 1)) {
      const width = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
      const height = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
      if (width > 1 && height > 4) found.push(`${name}: ${words} runs into ${others}`);
    }
  });
}
return [document.querySelectorAll('svg[role=img]').length, found.slice(0, 10)];
