// A push service of the browser's own, with the subscription that is given.

let subscription = null;
const [first, second] = %s;
let given = first;
PushManager.prototype.getSubscription = () =>
  new Promise((done) => setTimeout(() => done(subscription), 500)); // some browsers take long
PushManager.prototype.subscribe = async ({ userVisibleOnly, applicationServerKey }) => {
  window.asked = { userVisibleOnly, applicationServerKey };
  const text = applicationServerKey.replaceAll("-", "+").replaceAll("_", "/");
  const key = Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  return (subscription = {
    options: { applicationServerKey: key },
    toJSON: () => given,
    unsubscribe: async () => Boolean((given = second) && ((subscription = null) ?? true)),
  });
};
