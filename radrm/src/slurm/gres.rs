//! Lists of generic resources as Slurm writes them: `gpu:h100:2(S:0-1),shard:160K`.

/// Number of units of a resource in a list; `None`: the list does not name it.
pub(super) fn count(list: &str, name: &str) -> Option<u64> {
    let counts = items(list).into_iter().filter(|item| named(item) == name).map(|item| {
        let last = item.rsplit(':').next().unwrap_or_default();
        number(last).unwrap_or(1)
    });
    counts.reduce(u64::saturating_add)
}

/// The list with so many shards in place of those that it has.
pub(super) fn with_shards(list: &str, shards: u64) -> String {
    let mut items: Vec<String> =
        items(list).into_iter().filter(|item| named(item) != "shard").map(plain).collect();
    items.push(format!("shard:{shards}"));
    items.join(",")
}

/// The items, without what stands in parentheses.
fn items(list: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let mut items: Vec<&str> = list
        .split(|character| {
            match character {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            character == ',' && depth == 0
        })
        .map(|item| item.split('(').next().unwrap_or_default().trim())
        .collect();
    items.retain(|item| !item.is_empty() && *item != "null");
    items
}

/// An item without the word that Slurm's versions put before it.
fn plain(item: &str) -> String {
    item.strip_prefix("gres:").or_else(|| item.strip_prefix("gres/")).unwrap_or(item).to_owned()
}

fn named(item: &str) -> String {
    plain(item).split([':', '=']).next().unwrap_or_default().to_owned()
}

/// `2`, `160K`.
fn number(text: &str) -> Option<u64> {
    let (digits, factor) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        (at, 'g' | 'G') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_in_all_forms() {
        let list = "gpu:h100:2(S:0,1),gpu:a100:1,shard:160K";
        assert_eq!(
            (count(list, "gpu"), count(list, "shard"), count(list, "mps")),
            (Some(3), Some(163_840), None)
        );
        assert_eq!((count("gpu", "gpu"), count("(null)", "gpu"), count("", "gpu")), (Some(1), None, None));
        assert_eq!(count("gres:gpu:2", "gpu"), Some(2));
        assert_eq!(count("gres/shard:7", "shard"), Some(7));
    }

    #[test]
    fn other_resources_stay_when_shards_change() {
        assert_eq!(with_shards("gres:tmp:1,gres:shard:4", 9), "tmp:1,shard:9");
        assert_eq!(with_shards("(null)", 9), "shard:9");
        assert_eq!(with_shards("", 9), "shard:9");
    }
}
