"""Train a language model on files of tokens, uint16 without a header: nanoGPT's train.bin.

python examples/tokens.py s3://bucket/tokens/ --vocabulary 1024 --run s3://bucket/runs/8/
"""

import argparse

import torch

import penstock as ps


def main() -> None:
    """Predict the next token of each window; save the model and the place in the data; a second run goes on there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the folder of token files")
    parser.add_argument("--vocabulary", type=int, default=50_257, help="number of different tokens")
    parser.add_argument("--run", required=True, help="the folder for checkpoints")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=100, help="steps from one checkpoint to the next")
    arguments = parser.parse_args()

    # A window begins with the last token of the one before, so that every token but a file's first is predicted.
    length = arguments.context + 1
    dataset = ps.TokenDataset.from_shards(arguments.url, length=length, stride=arguments.context, dtype="uint16")
    loader = ps.DataLoader(dataset, arguments.batch_size, shuffle=ps.order.Lanes(), seed=1)
    print(f"{dataset.tokens} tokens, {len(dataset)} windows, {dataset.left_out} tokens left out")

    model = torch.nn.Sequential(torch.nn.Embedding(arguments.vocabulary, 32), torch.nn.Linear(32, arguments.vocabulary))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    run, step = ps.CheckpointManager(arguments.run, keep_last=2), 0
    if run.latest() is not None:
        state = run.restore(loader=loader)
        model.load_state_dict(state["model"])
        step = state["step"]

    while loader.state_dict()["epoch"] < arguments.epochs:
        for windows in loader:
            logits = model(windows[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % arguments.save_every == 0:
                run.save(step, {"model": model.state_dict(), "step": step}, loader=loader)
        print(f"step {step}: loss {loss:.2f}")


if __name__ == "__main__":
    main()
