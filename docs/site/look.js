// What a reader of this page would stumble over: text wider than the window, and text too faint for its background (WCAG 2.2, AA).
(() => {
  const found = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    const wide = [...document.querySelectorAll("body *")].filter((each) => each.getBoundingClientRect().right > root.clientWidth + 1);
    const named = wide.slice(-1).map((each) => `${each.tagName.toLowerCase()}.${each.className}: ${each.textContent.trim().slice(0, 40)}`);
    found.push(`wider than the window by ${root.scrollWidth - root.clientWidth} px: ${named}`);
  }
  const parsed = new Map();
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (text) => {
    if (!parsed.has(text)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = text;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      parsed.set(text, [r, g, b, a / 255]);
    }
    return parsed.get(text);
  };
  const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3]));
  const backgrounds = new Map();
  const background = (element) => {
    if (!element) return rgba(getComputedStyle(root).colorScheme.includes("dark") ? "#121212" : "#fff");
    if (!backgrounds.has(element)) {
      backgrounds.set(element, over(rgba(getComputedStyle(element).backgroundColor), background(element.parentElement)));
    }
    return backgrounds.get(element);
  };
  const light = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((each) => (each / 255 <= 0.04045 ? each / 255 / 12.92 : ((each / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const faint = new Set();
  const seen = new Set();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || seen.has(element)) continue;
    seen.add(element);
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const style = getComputedStyle(element);
    const below = background(element);
    const [one, other] = [light(over(rgba(style.color), below)), light(below)].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) {
      faint.add(`contrast ${ratio.toFixed(1)} of ${element.tagName.toLowerCase()}.${element.className} in ${element.parentElement.className}`);
    }
  }
  return [...found, ...faint];
})();
