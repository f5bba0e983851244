// The service worker of the static copy with models. It keeps the page's files for visits without a network, and adds the
// headers without which browsers give a page no threads, for hosts that cannot send them.

const CACHE = "specdemo-page";
const HEADERS = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };
const KEPT_ELSEWHERE = /\/(weights-\d+\.bin|tokens\.json)$/; // by weights.js

addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("fetch", (event) => {
  const { origin, pathname } = new URL(event.request.url);
  if (event.request.method !== "GET" || origin !== location.origin || KEPT_ELSEWHERE.test(pathname)) return;
  event.respondWith(answer(event.request));
});

async function answer(request) {
  const kept = await caches.open(CACHE).catch(() => null);
  try {
    const response = await fetch(request);
    const { origin, pathname } = new URL(request.url); // a prompt in the address is not kept
    if (response.ok) await kept?.put(origin + pathname, response.clone()).catch(() => null); // the disk may be full
    return response.status ? isolated(response) : response; // a redirection has no status
  } catch (error) {
    const found = await kept?.match(request, { ignoreSearch: true });
    if (!found) throw error;
    return isolated(found);
  }
}

function isolated(response) {
  const headers = new Headers(response.headers);
  for (const [name, value] of Object.entries(HEADERS)) headers.set(name, value);
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}
