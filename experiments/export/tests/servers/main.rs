//! Tests of requests to servers, with servers of the tests' own.

mod http;
mod mlflow;
mod otlp;
