//! Work of other papers, to compare with: their estimators, and readers of their tables of measurements.
//!
//! `radrm evaluate` and `radrm train` use it, and the tests of `estimator`. No daemon does.
//!
//! | module | has |
//! |---|---|
//! | [`data`] | measurements as text: published ones, and those of a site |
//! | [`estimated`] | published estimates beside measured peaks of real models |
//! | [`forest`] | random forests of regression trees |
//! | [`gpumemnet`] | GPUMemNet's classifier of a network's memory |
//! | [`kace`] | KACE's pairs of workloads, and its predictors of their throughput |
//! | [`perceptron`] | ensembles of perceptrons that classify |

pub mod data;
pub mod estimated;
pub mod forest;
pub mod gpumemnet;
pub mod kace;
mod numbers;
pub mod perceptron;
