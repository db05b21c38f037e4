// Files that the page offers: made in the browser, sent nowhere.

export function save(name: string, content: BlobPart, type: string): void {
  const link = document.createElement("a"), address = URL.createObjectURL(new Blob([content], { type }));
  link.href = address;
  link.download = name.replace(/[^\w.+-]+/g, "-").replace(/^-+/, "") || "wattflow";
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

export function savePicture(name: string, canvas: HTMLCanvasElement): void {
  canvas.toBlob((blob) => { if (blob) save(name, blob, "image/png"); }, "image/png");
}
