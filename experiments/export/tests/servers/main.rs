//! What is asked of servers, by servers of the tests' own.

mod http;
mod mlflow;
mod otlp;
