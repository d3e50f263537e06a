// Keeps what is marked `data-live` as the server has it now. A page works without any of this.

const live = () => document.querySelectorAll("[data-live]");
let waiting = null;

async function renew() {
  waiting = null;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
  if (!answer?.ok || answer.redirected) return;
  const made = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const old of live()) {
    const fresh = made.getElementById(old.id);
    if (fresh && fresh.innerHTML !== old.innerHTML && !old.contains(document.activeElement)) old.replaceWith(fresh);
  }
}

if (live().length) {
  const { session: wanted, seen } = document.body.dataset;
  let events = null;
  const soon = () => (waiting ??= setTimeout(renew, 300));
  const listen = () => {
    events?.close();
    events = null;
    if (document.hidden) return; // a browser has few connections for all of its tabs
    events = new EventSource(`/unabridged/v1/events?after=${seen}`);
    events.addEventListener("session", (event) => {
      if (!wanted || JSON.parse(event.data).id === wanted) soon();
    });
    events.addEventListener("fault", soon);
  };
  document.addEventListener("visibilitychange", () => {
    listen();
    if (!document.hidden) soon();
  });
  addEventListener("pagehide", () => events?.close());
  listen();
}
