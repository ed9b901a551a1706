//! `radrm export`: runs for trackers of experiments, for OpenTelemetry, and as tables.

mod chosen;
mod mlflow;
mod otlp;
mod send;
mod table;

use clap::Subcommand;

use crate::Failure;

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Send runs to a server of MLflow: parameters, figures, curves, and the profile with its page
    ///
    /// A run that is there already is left as it is, so the same command sends what an earlier call could not. The server
    /// stores what it receives, command lines among it. As MLflow's own client, a token is taken from
    /// MLFLOW_TRACKING_TOKEN, or a name and a password from MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.
    #[command(after_long_help = "\
Examples:
  radrm export mlflow --server http://localhost:5000 train.4711.radrm
  radrm export mlflow --server https://mlflow.example.org grid.toml
  radrm export mlflow --experiment resnet runs/")]
    Mlflow(mlflow::Flags),
    /// Send figures and curves to a receiver of OpenTelemetry (OTLP over HTTP)
    ///
    /// Metrics of GPUs have the names of the semantic conventions for hardware (hw.gpu.memory.usage), the others begin
    /// with `radrm.`. Values keep the times at which they were measured. Headers, a token among them, are taken from
    /// OTEL_EXPORTER_OTLP_HEADERS (NAME=VALUE,...).
    #[command(after_long_help = "\
Examples:
  radrm export otlp --server http://localhost:4318 train.4711.radrm
  radrm export otlp runs/")]
    Otlp(otlp::Flags),
    /// Write a table as CSV: a row for each run, or for each point of their curves
    #[command(after_long_help = "\
Examples:
  radrm export csv grid.toml -o runs.csv
  radrm export csv --curves train.4711.radrm | head")]
    Csv(table::Flags),
    /// Write a table as Parquet, for pandas and polars: a row for each run, or for each point of their curves
    #[command(after_long_help = "\
Examples:
  radrm export parquet grid.toml -o runs.parquet
  radrm export parquet --curves runs/ -o curves.parquet")]
    Parquet(table::Flags),
}

/// Exports runs.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Mlflow(flags) => mlflow::run(flags),
        Command::Otlp(flags) => otlp::run(flags),
        Command::Csv(flags) => table::run(flags, radrm_export::table::Table::csv),
        Command::Parquet(flags) => table::run(flags, radrm_export::table::Table::parquet),
    }
}
