//! "Did you mean": the nearest of some known words to one that was written.

/// The known word nearest to `written`, if it is near enough to be what was meant: at most a third of its letters differ
/// (moved letters count once), or it only differs in case or in `-` for `_`.
pub(crate) fn nearest<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let fold = |word: &str| word.to_lowercase().replace(['-', ' '], "_");
    let folded = fold(written);
    let mut best: Option<(usize, &str)> = None;
    for word in known {
        let other = fold(word);
        if other == folded {
            return Some(word);
        }
        let length = other.chars().count();
        // A stray word longer than any key is not worth an edit distance, which is quadratic.
        if folded.len() > 4 * (length + 4) {
            continue;
        }
        let distance = strsim::osa_distance(&folded, &other);
        let contained = folded.len() >= 4 && (other.starts_with(&folded) || folded.starts_with(&other) && other.len() >= 4);
        if (distance <= length.div_ceil(3) || contained) && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, word));
        }
    }
    best.map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn nearest_finds_slips_and_leaves_strangers_alone() {
        let known = ["lanes", "policy", "quantum_cycles", "frame_cycles", "seed"];
        assert_eq!(nearest("lane", known), Some("lanes"));
        assert_eq!(nearest("frame-cycles", known), Some("frame_cycles"));
        assert_eq!(nearest("FRAME_CYCLES", known), Some("frame_cycles"));
        assert_eq!(nearest("quantum", known), Some("quantum_cycles"));
        assert_eq!(nearest("sede", known), Some("seed"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
    }
}
