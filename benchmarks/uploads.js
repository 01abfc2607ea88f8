// What writing needs of S3 beside nginx's own PUT of bodies: begin, complete, describe, read back, list, copy, delete.
import fs from 'fs';

function xml(r, status, text) {
  r.headersOut['Content-Type'] = 'application/xml';
  r.return(status, '<?xml version="1.0" encoding="UTF-8"?>' + text);
}

function refuse(r, status, code) {
  if (r.method === 'HEAD') r.return(status);
  else xml(r, status, `<Error><Code>${code}</Code><Message>${code}</Message></Error>`);
}

// An object is never put together: a note names its parts, in order, and the benchmark compares those afterwards.
function note(r, path) {
  return r.variables.folder + '/complete/' + path.replace(/\//g, '\n');
}

function known(r, path) {
  try {
    return JSON.parse(fs.readFileSync(note(r, path)));
  } catch (e) {
    return null;
  }
}

function keep(r, path, etag, parts) {
  const sizes = parts.map((part) => fs.statSync(part).size);
  const size = sizes.reduce((sum, each) => sum + each, 0);
  fs.writeFileSync(note(r, path), JSON.stringify({ path, size, etag, parts, modified: Date.now() }));
}

function begin(r) {
  const id = Date.now() + '-' + Math.random().toString().slice(2);
  xml(r, 200, `<InitiateMultipartUploadResult><UploadId>${id}</UploadId></InitiateMultipartUploadResult>`);
}

function quoted(etag) {
  return `<ETag>${etag.replace(/"/g, '&quot;')}</ETag>`;
}

function complete(r) {
  const folder = `${r.variables.folder}/put/${r.args.uploadId}/`;
  const parts = (r.requestText.match(/<PartNumber>\d+/g) || []).map((tag) => folder + tag.slice('<PartNumber>'.length));
  const etag = `"${r.args.uploadId}-${parts.length}"`;
  try {
    keep(r, r.uri, etag, parts);
  } catch (e) {
    refuse(r, 400, 'InvalidPart');
    return;
  }
  xml(r, 201, `<CompleteMultipartUploadResult>${quoted(etag)}</CompleteMultipartUploadResult>`);
}

function read(r) {
  const found = known(r, r.uri);
  if (found === null) {
    refuse(r, 404, 'NoSuchKey');
    return;
  }
  r.headersOut['ETag'] = found.etag;
  r.headersOut['Last-Modified'] = new Date(found.modified).toUTCString();
  if (r.method === 'GET') {
    r.return(200, Buffer.concat(found.parts.map((part) => fs.readFileSync(part))));
    return;
  }
  r.headersOut['Content-Length'] = String(found.size);
  r.status = 200;
  r.sendHeader();
  r.finish();
}

function list(r) {
  const bucket = r.uri.replace(/\/+$/, '') + '/';
  const start = bucket + decodeURIComponent(r.args.prefix || '');
  const delimiter = decodeURIComponent(r.args.delimiter || '');
  const names = fs.readdirSync(r.variables.folder + '/complete').map((name) => name.replace(/\n/g, '/'));
  const folders = {};
  const contents = names.filter((name) => name.startsWith(start)).sort().map((name) => {
    const cut = delimiter ? name.indexOf(delimiter, start.length) : -1;
    if (cut >= 0) {
      folders[name.slice(bucket.length, cut + 1)] = true;
      return '';
    }
    const found = known(r, name);
    const modified = new Date(found.modified).toISOString();
    return `<Contents><Key>${name.slice(bucket.length)}</Key><Size>${found.size}</Size>${quoted(found.etag)}`
      + `<LastModified>${modified}</LastModified><StorageClass>STANDARD</StorageClass></Contents>`;
  });
  const prefixes = Object.keys(folders).map((each) => `<CommonPrefixes><Prefix>${each}</Prefix></CommonPrefixes>`);
  const body = contents.concat(prefixes).join('');
  xml(r, 200, `<ListBucketResult><IsTruncated>false</IsTruncated>${body}</ListBucketResult>`);
}

function copy(r) {
  const source = '/' + decodeURIComponent(r.headersIn['x-amz-copy-source']).replace(/^\//, '');
  const found = known(r, source);
  if (found === null) {
    refuse(r, 404, 'NoSuchKey');
    return;
  }
  keep(r, r.uri, found.etag, found.parts);
  const modified = new Date(found.modified).toISOString();
  xml(r, 200, `<CopyObjectResult>${quoted(found.etag)}<LastModified>${modified}</LastModified></CopyObjectResult>`);
}

function remove(r, path) {
  try {
    fs.unlinkSync(note(r, path));
  } catch (e) {
    // S3 says 204 to what was never there too
  }
}

function removeMany(r) {
  const keys = (r.requestText.match(/<Key>[^<]*/g) || []).map((tag) => tag.slice('<Key>'.length));
  keys.forEach((key) => remove(r, r.uri.replace(/\/+$/, '') + '/' + key));
  xml(r, 200, '<DeleteResult></DeleteResult>');
}

function answer(r) {
  if (r.method === 'HEAD' || r.method === 'GET') read(r);
  else if (r.method === 'PUT') copy(r);
  else if (r.method === 'DELETE') {
    remove(r, r.uri);
    r.return(204);
  } else if (r.method === 'POST' && 'uploads' in r.args) begin(r);
  else if (r.method === 'POST') complete(r);
  else r.return(405);
}

function bucket(r) {
  if (r.method === 'GET') list(r);
  else if (r.method === 'POST' && 'delete' in r.args) removeMany(r);
  else if (r.method === 'HEAD') r.return(200);
  else r.return(405);
}

// nginx would answer a 200 to "If-None-Match: *" by 304: so what creates is a 201 until that is past.
function created(r) {
  if (r.status === 201) r.status = 200;
}

// nginx says 201 to a new file and gives it no tag; S3 says 200 and does. What is no upload's part is an object.
function stored(r) {
  r.status = 200;
  if ('partNumber' in r.args) {
    r.headersOut['ETag'] = `"${r.args.partNumber}"`;
    return;
  }
  const id = r.variables.request_id;
  r.headersOut['ETag'] = `"${id}"`;
  keep(r, decodeURIComponent(r.variables.request_uri.replace(/\?.*/, '')), `"${id}"`, [`${r.variables.folder}/put/${id}/1`]);
}

export default { answer, bucket, created, stored };
