// SPDX-License-Identifier: Apache-2.0
// The server: plain requests and answers that come in events.

let key = "";
export const set_key = (value) => { key = value; };

const headers = (more = {}) => (key ? { ...more, Authorization: `Bearer ${key}` } : more);

async function failure(response) {
  let message = `${response.status} ${response.statusText}`;
  try { message = (await response.json()).error.message; } catch { /* no object: the status has to do */ }
  const error = new Error(message);
  error.status = response.status;
  return error;
}

export async function get(path) {
  const response = await fetch(path, { headers: headers(), cache: "no-store" });
  if (!response.ok) throw await failure(response);
  return response.json();
}

// Calls `on` with each object of a stream.
export async function stream(path, body, signal, on) {
  const response = await fetch(path, {
    method: "POST", signal, headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(body),
  });
  if (!response.ok) throw await failure(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: ")) continue;
      if (event === "data: [DONE]") return;
      const object = JSON.parse(event.slice(6));
      if (object.error) throw new Error(object.error.message);
      on(object);
    }
  }
}
