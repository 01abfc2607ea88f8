"""A program of the stages that webdataset's README shows; the import is changed, and nothing else."""

import os

import torch.utils.data

import penstock.compat.webdataset as wds

bucket = os.environ.get("BUCKET", "https://storage.googleapis.com/webdataset/testdata/")
dataset = "publaynet-train-{000000..000009}.tar"
url = bucket + dataset

shuffle_buffer = 10  # usually, pick something bigger, like 1000
pil_dataset = wds.WebDataset(url).shuffle(shuffle_buffer).decode("pil").to_tuple("png", "json")
print(isinstance(pil_dataset, torch.utils.data.IterableDataset))

for image, json in pil_dataset:
    break
print(image.size, sorted(json))


def preprocess(sample):
    image, json = sample
    try:
        label = json["annotations"][0]["category_id"]
    except LookupError:
        label = 0
    return torch.tensor(image.size), label


preproc_dataset = pil_dataset.map(preprocess)
x, y = next(iter(preproc_dataset))
print(x.shape, y)


def get_patches(src):
    for sample in src:
        image, json = sample
        w, h = image.size
        for i in range(4):
            x, y = torch.randint(w - 2, ()).item(), torch.randint(h - 2, ()).item()
            yield image.crop((x, y, x + 2, y + 2)).size, json["image_id"]


patch_dataset = pil_dataset.compose(get_patches)
print(len(list(patch_dataset)))

batched = preproc_dataset.batched(16)
loader = wds.WebLoader(batched, num_workers=2, batch_size=None)
loader = loader.unbatched().shuffle(100).batched(12)
sizes, labels = next(iter(loader))
print(tuple(sizes.shape), len(labels))
print(sum(len(labels) for _, labels in loader.with_epoch(5)))
