// Every text of a page with the contrast of its colour against what lies behind it, as computed styles have them.
() => {
  for (const one of document.querySelectorAll("details")) one.open = true;
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return { rgb: [r, g, b], a };
  };
  const over = (top, below) => top.rgb.map((value, at) => value * top.a + below[at] * (1 - top.a));
  const light = (rgb) => rgb.map((value) => value / 255)
    .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, at) => sum + value * [0.2126, 0.7152, 0.0722][at], 0);
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (element) => {
    if (!element) return [255, 255, 255];
    const own = parse(getComputedStyle(element).backgroundColor);
    return own.a === 1 ? own.rgb : over(own, behind(element.parentElement));
  };
  const drawn = (text) => {
    text.scrollIntoView({ block: "center", inline: "center" });
    const box = text.getBoundingClientRect();
    const under = document.elementsFromPoint(box.x + box.width / 2, box.y + box.height / 2)
      .filter((one) => one instanceof SVGGeometryElement && text.ownerSVGElement.contains(one)).reverse();
    return under.reduce((below, shape) => {
      const style = getComputedStyle(shape);
      if (!style.fill.startsWith("rgb")) return below;
      const fill = parse(style.fill);
      return over({ rgb: fill.rgb, a: fill.a * style.fillOpacity * style.opacity }, below);
    }, behind(text.ownerSVGElement.parentElement));
  };
  const found = [];
  const look = (element, colour, text) => {
    const back = element instanceof SVGElement ? drawn(element) : behind(element);
    found.push([ratio(over(parse(colour), back), back), text.trim().slice(0, 40), element.tagName, element.className.baseVal ?? element.className]);
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const holder = node.parentElement;
    if (!node.data.trim() || holder.closest("script, title, option, [hidden]")) continue;
    const style = getComputedStyle(holder);
    look(holder, holder instanceof SVGElement ? style.fill : style.color, node.data);
  }
  for (const one of document.querySelectorAll("select, input")) look(one, getComputedStyle(one).color, one.name);
  for (const one of document.querySelectorAll("input")) look(one, getComputedStyle(one, "::placeholder").color, one.placeholder);
  return found;
}
