/** Unpacks the page's modules, and starts the first of them. */

(async () => {
  const packed = Uint8Array.from(atob(document.getElementById("modules").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const map = document.createElement("script");
  map.type = "importmap";
  map.textContent = await new Response(stream).text();
  document.head.append(map);
  await import("#main");
})();
