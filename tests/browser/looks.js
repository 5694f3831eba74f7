// Texts with too little contrast, how much wider the page is than its window, and how light its ground is.
(() => {
  const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
  const linear = (one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
  const light = (colour) => channels(colour).slice(0, 3)
    .reduce((sum, one, index) => sum + linear(one / 255) * [0.2126, 0.7152, 0.0722][index], 0);
  const isClear = (one) => channels(getComputedStyle(one).backgroundColor)[3] === 0;
  const ground = (one) => {
    while (one.parentElement && isClear(one)) one = one.parentElement;
    return light(getComputedStyle(isClear(one) ? document.body : one).backgroundColor);
  };
  const isPoor = (one) => {
    const [low, high] = [light(getComputedStyle(one).color), ground(one)].sort((one, other) => one - other);
    return (high + 0.05) / (low + 0.05) < 4.5;
  };
  const hasText = (one) => [...one.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const texts = [...document.querySelectorAll("body *")]
    .filter((one) => one.offsetParent && hasText(one) && !one.closest("#marks, option, [role=status]"));
  const root = document.documentElement;
  return {
    poor: texts.filter(isPoor).map((one) => `${one.tagName}.${one.className} ${one.textContent.slice(0, 30)}`),
    wide: Math.max(0, root.scrollWidth - root.clientWidth),
    ground: ground(document.body),
  };
})()
