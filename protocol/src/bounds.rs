//! Bounds of one submission.

/// Jobs of an array.
pub const MAX_TASKS: usize = 10_000;
/// Jobs of a group that start together: more than share the GPUs of a node.
pub const MAX_TOGETHER: usize = 256;
/// Words of a command and an environment: more than these can be.
pub(crate) const MAX_WORDS: usize = 100_000;
/// Longest word that the kernel gives to a program (`MAX_ARG_STRLEN`), bytes, with its zero byte.
pub(crate) const MAX_WORD: usize = 128 << 10;
/// Command and environment together, with their zero bytes: what the kernel gives to a program whose stack may have
/// the usual 8 MiB.
pub(crate) const MAX_BYTES: usize = 2 << 20;
/// Names.
pub(crate) const MAX_NAME: usize = 256;
/// Source of an estimate, in its serialized form.
pub(crate) const MAX_SOURCE: usize = 4096;
/// More estimators than a file has.
pub(crate) const MAX_ESTIMATES: usize = 16;
/// More jobs that one job waits for are an array's.
pub(crate) const MAX_DEPENDENCIES: usize = 100;
/// A path that the kernel takes (`PATH_MAX`), with its zero byte.
pub(crate) const MAX_PATH: usize = 4096;
