# mypy: disable-error-code="import-not-found"
"""Trains the VAD's network with numpy. Its two small layers of rectifiers are trained with Adam and cross-entropy."""

import itertools
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Float32Array: TypeAlias = npt.NDArray[np.float32]

HIDDEN_SIZES = (24, 8)
BATCH_SIZE = 2048


class Network:
    """A network with its weights, for inference and training."""

    def __init__(self, width: int, random: np.random.Generator) -> None:
        sizes = (width, *HIDDEN_SIZES, 1)
        self.weights: list[Float32Array] = []
        for before, after in itertools.pairwise(sizes):
            spread = np.sqrt(2 / before)
            self.weights += [
                (random.standard_normal((before, after)) * spread).astype(np.float32),
                np.zeros(after, np.float32),
            ]
        self._mean = [np.zeros_like(w) for w in self.weights]
        self._square = [np.zeros_like(w) for w in self.weights]
        self._steps = 0

    def calculate_log_odds(self, rows: Float32Array) -> Float32Array:
        """Return the log-odds of speech for each row."""
        w1, b1, w2, b2, w3, b3 = self.weights
        hidden = np.maximum(np.maximum(rows @ w1 + b1, 0) @ w2 + b2, 0)
        probabilities: Float32Array = (hidden @ w3 + b3)[:, 0]
        return probabilities

    def train_batch(self, rows: Float32Array, target: Float32Array, rate: float) -> None:
        """Update the weights for one batch with the learning rate ``rate``."""
        w1, b1, w2, b2, w3, b3 = self.weights
        first = np.maximum(rows @ w1 + b1, 0)
        second = np.maximum(first @ w2 + b2, 0)
        probabilities = (second @ w3 + b3)[:, 0]
        error = ((1 / (1 + np.exp(-probabilities)) - target) / len(rows))[:, None].astype(np.float32)
        back2 = (error @ w3.T) * (second > 0)
        gradient1 = (back2 @ w2.T) * (first > 0)
        slopes = [rows.T @ gradient1, gradient1.sum(0), first.T @ back2, back2.sum(0), second.T @ error, error.sum(0)]
        self._steps += 1
        for index, slope in enumerate(slopes):
            self._mean[index] += 0.1 * (slope - self._mean[index])
            self._square[index] += 0.001 * (slope**2 - self._square[index])
            mean = self._mean[index] / (1 - 0.9**self._steps)
            square = self._square[index] / (1 - 0.999**self._steps)
            self.weights[index] -= (rate * mean / (np.sqrt(square) + 1e-8)).astype(np.float32)


def train_network(rows: Float32Array, target: Float32Array, *, epochs: int, seed: int = 1) -> Network:
    """Train a network on all rows, with a learning rate that decreases to almost zero."""
    random = np.random.default_rng(seed)
    network = Network(rows.shape[1], random)
    batches = len(rows) // BATCH_SIZE
    for epoch in range(epochs):
        order = random.permutation(len(rows))
        for batch in range(batches):
            chosen = order[batch * BATCH_SIZE : (batch + 1) * BATCH_SIZE]
            progress = (epoch + batch / batches) / epochs
            network.train_batch(rows[chosen], target[chosen], 3e-3 * (1 - progress) + 1e-5)
    return network
