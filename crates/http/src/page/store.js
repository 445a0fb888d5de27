// Conversations in the browser's database.

const NAME = "orlop";
const STORE = "conversations";

let opened = null;

function database() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

async function transact(mode, work) {
  const store = (await database()).transaction(STORE, mode).objectStore(STORE);
  const request = work(store);
  return new Promise((resolve, reject) => {
    store.transaction.oncomplete = () => resolve(request.result);
    store.transaction.onabort = () => reject(store.transaction.error);
  });
}

export const all = () => transact("readonly", (store) => store.getAll());
export const put = (conversation) => transact("readwrite", (store) => store.put(conversation));
export const remove = (id) => transact("readwrite", (store) => store.delete(id));
