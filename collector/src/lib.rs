//! Attaches to segments, samples GPUs, writes profiles and keeps the dataset.
