export function mountReport(): void {}
