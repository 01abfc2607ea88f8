// What a bucket of plain files needs beside nginx's own GET, HEAD and PUT: listings in S3's form, and S3's answer to a PUT.
import fs from 'fs';

function root(r) {
  return `${r.variables.folder}/files/`;
}

function escaped(text) {
  return text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;');
}

// nginx's own tag of a file, which its GET and HEAD tell: seconds and size, in hexadecimal digits.
function etag(found) {
  return `${Math.floor(found.mtimeMs / 1000).toString(16)}-${found.size.toString(16)}`;
}

// Names in the order of keys: a folder is sorted as its name with '/'.
function entries(folder) {
  const found = fs.readdirSync(folder, { withFileTypes: true });
  return found.map((each) => each.name + (each.isDirectory() ? '/' : '')).sort();
}

// Collects keys below a folder until the page is full, and says so; what lies before the prefix or the token is passed by.
function walk(page, folder) {
  return entries(page.root + folder).every((name) => {
    const key = folder + name;
    if (!name.endsWith('/')) return add(page, key, false);
    if (!key.startsWith(page.prefix) && !page.prefix.startsWith(key)) return true;
    if (key <= page.after && !page.after.startsWith(key)) return true;
    if (!page.delimiter || key.length <= page.prefix.length) return walk(page, key);
    return add(page, key, true);
  });
}

function add(page, key, folder) {
  if (key.startsWith(page.prefix) && key > page.after) page.items.push({ key, folder });
  return page.items.length <= page.most;
}

function described(page, item) {
  if (item.folder) return `<CommonPrefixes><Prefix>${escaped(item.key)}</Prefix></CommonPrefixes>`;
  const found = fs.statSync(page.root + item.key);
  return `<Contents><Key>${escaped(item.key)}</Key><Size>${found.size}</Size><ETag>&quot;${etag(found)}&quot;</ETag>`
    + `<LastModified>${new Date(found.mtimeMs).toISOString()}</LastModified><StorageClass>STANDARD</StorageClass></Contents>`;
}

function argument(r, name) {
  return decodeURIComponent((r.variables[`arg_${name}`] || '').replace(/\+/g, ' ')); // r.args may be decoded, or not
}

function list(r) {
  const page = { root: root(r), items: [], most: Number(argument(r, 'max-keys') || 1000), prefix: argument(r, 'prefix') };
  page.delimiter = argument(r, 'delimiter');
  page.after = argument(r, 'continuation-token') || argument(r, 'start-after');
  walk(page, '');
  const shown = page.items.slice(0, page.most);
  const more = page.items.length > shown.length;
  const token = more ? `<NextContinuationToken>${escaped(shown[shown.length - 1].key)}</NextContinuationToken>` : '';
  r.headersOut['Content-Type'] = 'application/xml';
  r.return(200, `<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><IsTruncated>${more}</IsTruncated>${token}`
    + `<KeyCount>${shown.length}</KeyCount>${shown.map((item) => described(page, item)).join('')}</ListBucketResult>`);
}

function bucket(r) {
  if (r.method === 'GET') list(r);
  else r.return(200);
}

// nginx says 201 or 204 to a PUT and gives it no tag; S3 says 200 and does.
function stored(r) {
  if (r.method !== 'PUT' || r.status >= 300) return;
  r.status = 200;
  r.headersOut['ETag'] = `"${etag(fs.statSync(root(r) + r.uri.split('/').slice(2).join('/')))}"`;
}

export default { bucket, stored };
