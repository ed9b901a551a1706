//! The clock against published measurements that lie beside the repository.

mod held;
mod published;
