import { defineConfig } from "vite";

// One script and one style sheet under fixed names: the build gives the same bytes from the same sources, the page
// needs no inline script, and a report carries the same two files within itself.
export default defineConfig({
  base: "./",
  publicDir: false,
  build: {
    outDir: "../src/wattflow/data/web",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    chunkSizeWarningLimit: 1000,
    rollupOptions: {
      output: {
        format: "iife",
        entryFileNames: "assets/app-[hash].js",
        assetFileNames: "assets/app-[hash][extname]",
      },
    },
  },
});
