import { defineConfig } from "vite";

// The built files are committed, so that a wheel needs no Node. The same sources always give the same bytes: every
// version is fixed by the lock file, and names are made from the content.
export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../src/dueline/server/static/ui",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: { proxy: { "/v1": "http://127.0.0.1:9277", "/readyz": "http://127.0.0.1:9277" } },
});
