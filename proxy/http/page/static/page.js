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
  const wanted = document.body.dataset.session;
  const events = new EventSource("/unabridged/v1/events");
  const heard = (event) => {
    if (event.data && wanted && JSON.parse(event.data).id !== wanted) return;
    waiting ??= setTimeout(renew, 300);
  };
  events.addEventListener("session", heard);
  events.addEventListener("fault", () => (waiting ??= setTimeout(renew, 300)));
  addEventListener("pagehide", () => events.close());
}
