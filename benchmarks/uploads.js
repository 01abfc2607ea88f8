// What an upload needs of S3 beside nginx's own PUT of the parts: begin, complete, and HEAD of what was completed.
import fs from 'fs';

function xml(r, status, text) {
  r.headersOut['Content-Type'] = 'application/xml';
  r.return(status, '<?xml version="1.0" encoding="UTF-8"?>' + text);
}

function note(r) {
  return r.variables.folder + '/complete/' + r.uri.replace(/\//g, '_');
}

function begin(r) {
  const id = Date.now() + '-' + Math.random().toString().slice(2);
  xml(r, 200, `<InitiateMultipartUploadResult><UploadId>${id}</UploadId></InitiateMultipartUploadResult>`);
}

// The object is never put together: the note names its parts, in order, and the benchmark compares those afterwards.
function complete(r) {
  const folder = `${r.variables.folder}/put/${r.args.uploadId}/`;
  const parts = (r.requestText.match(/<PartNumber>\d+/g) || []).map((tag) => folder + tag.slice('<PartNumber>'.length));
  let size = 0;
  try {
    parts.forEach((part) => { size += fs.statSync(part).size; });
  } catch (e) {
    xml(r, 400, '<Error><Code>InvalidPart</Code><Message>a part is not there</Message></Error>');
    return;
  }
  const etag = `"${r.args.uploadId}-${parts.length}"`;
  fs.writeFileSync(note(r), JSON.stringify({ size, etag, parts }));
  xml(r, 200, `<CompleteMultipartUploadResult><ETag>${etag.replace(/"/g, '&quot;')}</ETag></CompleteMultipartUploadResult>`);
}

function head(r) {
  let found;
  try {
    found = JSON.parse(fs.readFileSync(note(r)));
  } catch (e) {
    r.return(404);
    return;
  }
  r.headersOut['ETag'] = found.etag;
  r.headersOut['Content-Length'] = String(found.size);
  r.status = 200;
  r.sendHeader();
  r.finish();
}

function answer(r) {
  if (r.method === 'HEAD') head(r);
  else if (r.method === 'POST' && 'uploads' in r.args) begin(r);
  else if (r.method === 'POST') complete(r);
  else r.return(405);
}

// nginx says 201 to a new part and gives it no tag; S3 says 200 and does.
function stored(r) {
  r.status = 200;
  r.headersOut['ETag'] = `"${r.args.partNumber}"`;
}

export default { answer, stored };
