//! Summaries and reports of profiles.
