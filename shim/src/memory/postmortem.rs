//! Post-mortem of a refused request: see [`crate::telemetry::postmortem`].

use crate::cx::Cx;
use crate::telemetry::{FailedRequest, SiteId};

/// Writes down the memory holders of this moment, if this refusal is the first of its GPU or the first in a while.
pub(super) fn record(cx: &Cx<'_>, request: &FailedRequest, site: SiteId) {
    cx.writer().postmortem(request, site, |draft| cx.page.quota.describe(request.gpu, draft));
}
