//! Load over time, cut into columns of equal width.

use radrm_profile::Nanos;
use radrm_profile::model::{GpuIndex, GpuSpan, HostSpan, Profile, Share};

/// A span and its value.
pub(crate) type Valued = (Nanos, Nanos, f64);

/// Means over `count` columns from zero to `end`; `None` where nothing was measured.
pub(crate) fn of(spans: &[Valued], end: Nanos, count: usize) -> Vec<Option<f64>> {
    let count = count.max(1);
    let width = end.0.max(1) as f64 / count as f64;
    let mut sums = vec![(0.0, 0.0); count];
    for &(t, span, value) in spans {
        let (from, to) = (t.0 as f64 / width, t.0.saturating_add(span.0.max(1)) as f64 / width);
        let first = (from as usize).min(count);
        let last = (to.ceil() as usize).min(count);
        for (column, (sum, time)) in sums.iter_mut().enumerate().take(last).skip(first) {
            let overlap = to.min(column as f64 + 1.0) - from.max(column as f64);
            if overlap > 0.0 {
                *sum += value * overlap;
                *time += overlap;
            }
        }
    }
    sums.into_iter().map(|(sum, time)| (time > 0.0).then(|| sum / time)).collect()
}

/// Load of a GPU, a share of one, over columns.
pub(crate) fn gpu(
    profile: &Profile,
    gpu: GpuIndex,
    count: usize,
    value: impl Fn(&GpuSpan) -> Option<Share>,
) -> Vec<Option<f64>> {
    gpu_value(profile, gpu, count, |span| value(span).map(Share::get))
}

/// Any figure of a GPU over columns.
pub(crate) fn gpu_value(
    profile: &Profile,
    gpu: GpuIndex,
    count: usize,
    value: impl Fn(&GpuSpan) -> Option<f64>,
) -> Vec<Option<f64>> {
    let spans = profile.activity.iter().filter(|span| span.gpu == gpu);
    let valued: Vec<Valued> = spans.filter_map(|span| Some((span.t, span.span, value(span)?))).collect();
    of(&valued, profile.duration(), count)
}

/// SM activity by the shapes of timed launches over columns, of all processes together, as of one GPU.
pub(crate) fn launches(profile: &Profile, count: usize) -> Vec<Option<f64>> {
    let mut sum = vec![None; count.max(1)];
    for process in &profile.processes {
        let spans = profile.kernel_activity.iter().filter(|span| span.process == process.key);
        let active = spans
            .filter_map(|span| Some((span.t, span.span, span.kernel_activity.filling(span.span)?.active)));
        let own = of(&active.collect::<Vec<_>>(), profile.duration(), count);
        for (sum, own) in sum.iter_mut().zip(own) {
            *sum = own.map(|own: f64| (sum.unwrap_or(0.0) + own).min(1.0)).or(*sum);
        }
    }
    sum
}

/// Processors that the job kept busy, over columns.
pub(crate) fn host(profile: &Profile, count: usize) -> Vec<Option<f64>> {
    let busy = |span: &HostSpan| (span.t, span.span, span.busy.0 as f64 / span.span.0.max(1) as f64);
    let valued: Vec<Valued> = profile.host.spans.iter().map(busy).collect();
    of(&valued, profile.duration(), count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_means_by_time() {
        let spans = [(Nanos(0), Nanos(10), 1.0), (Nanos(10), Nanos(5), 0.0), (Nanos(30), Nanos(10), 0.5)];
        let found = of(&spans, Nanos(40), 4);
        assert_eq!(found, [Some(1.0), Some(0.0), None, Some(0.5)]);
        assert_eq!(of(&spans, Nanos(40), 2), [Some(10.0 / 15.0), Some(0.5)]);
        assert_eq!(of(&[], Nanos(0), 0), [None]);
        // Spans that no clock has ever shown.
        let absurd = [(Nanos(u64::MAX), Nanos(u64::MAX), 1.0)];
        assert_eq!(of(&absurd, Nanos(40), 2), [None, None]);
    }
}
