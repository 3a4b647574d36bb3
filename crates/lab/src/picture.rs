//! The comparison as an SVG chart: one line per policy, from its median wait to its longest, on a
//! logarithmic scale. Integer arithmetic only, so equal rows give equal bytes.

use crate::compare::PolicyRow;
use std::fmt::Write as _;

const LEFT: u64 = 140;
const WIDTH: u64 = 480;
const ROW: u64 = 34;
const TOP: u64 = 78;

/// Draws the rows as an SVG document.
#[must_use]
pub fn picture(title: &str, rows: &[PolicyRow]) -> String {
    let most = rows.iter().map(|row| row.waits.longest()).max().unwrap_or(1).max(2);
    let octaves = u64::from(most.next_power_of_two().trailing_zeros()).max(1);
    let place = |cycles: u64| LEFT + position(cycles, WIDTH, octaves);
    let (width, height) = (LEFT + WIDTH + 230, TOP + ROW * rows.len() as u64 + 60);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    let _ = writeln!(
        svg,
        "<text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"bold\">{}</text>",
        escape(title)
    );
    let _ = writeln!(
        svg,
        "<text x=\"16\" y=\"46\">cycles from ready to running: median, 90 %, 99 % and the longest</text>"
    );
    let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\">fairness</text>", LEFT + WIDTH + 24, TOP - 10);
    let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\">scheduler</text>", LEFT + WIDTH + 110, TOP - 10);
    let bottom = TOP + ROW * rows.len() as u64;
    for octave in (0..=octaves).step_by(octaves.div_ceil(8).max(1) as usize) {
        let x = place(1 << octave.min(63));
        let _ = writeln!(
            svg,
            "<line x1=\"{x}\" y1=\"{TOP}\" x2=\"{x}\" y2=\"{bottom}\" stroke=\"#ddd\"/>"
        );
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666\">{}</text>",
            bottom + 20,
            short(1 << octave.min(63))
        );
    }
    for (at, row) in rows.iter().enumerate() {
        let y = TOP + ROW * at as u64 + ROW / 2;
        let points = [
            row.waits.percentile(500),
            row.waits.percentile(900),
            row.waits.percentile(990),
            row.waits.longest(),
        ];
        let [median, ninety, most_of_all, longest] = points.map(place);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            LEFT - 12,
            y + 4,
            escape(&row.policy)
        );
        let _ = writeln!(
            svg,
            "<line x1=\"{median}\" y1=\"{y}\" x2=\"{longest}\" y2=\"{y}\" stroke=\"#4477aa\" stroke-width=\"2\"/>"
        );
        for (x, radius, fill) in [
            (median, 6, "#4477aa"),
            (ninety, 5, "#66ccee"),
            (most_of_all, 5, "#ccbb44"),
            (longest, 5, "#ee6677"),
        ] {
            let _ = writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"{fill}\"/>");
        }
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\">{}</text>",
            LEFT + WIDTH + 24,
            y + 4,
            thousandths(row.fairness)
        );
        let scheduler = (row.overhead * 1_000).checked_div(row.overhead + row.charged).unwrap_or(0);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\">{}.{} %</text>",
            LEFT + WIDTH + 110,
            y + 4,
            scheduler / 10,
            scheduler % 10
        );
    }
    let legend =
        [("#4477aa", "median"), ("#66ccee", "90 %"), ("#ccbb44", "99 %"), ("#ee6677", "longest")];
    for (at, (fill, text)) in legend.iter().enumerate() {
        let x = LEFT + 90 * at as u64;
        let _ =
            writeln!(svg, "<circle cx=\"{x}\" cy=\"{}\" r=\"5\" fill=\"{fill}\"/>", bottom + 42);
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\">{text}</text>", x + 10, bottom + 46);
    }
    svg.push_str("</svg>\n");
    svg
}

/// The position of a number of cycles on a scale of `octaves` powers of two, linear between two of
/// them.
const fn position(cycles: u64, width: u64, octaves: u64) -> u64 {
    if cycles < 2 {
        return 0;
    }
    let power = cycles.ilog2() as u64;
    let below = 1u64 << power;
    // `below` is at most 2^63, so the fraction is computed in thousandths.
    let fraction = ((cycles - below) as u128 * 1_000 / below as u128) as u64;
    (power * 1_000 + fraction) * width / (octaves * 1_000)
}

fn short(cycles: u64) -> String {
    match cycles {
        0..1_024 => cycles.to_string(),
        1_024..1_048_576 => format!("{}k", cycles >> 10),
        1_048_576..1_073_741_824 => format!("{}M", cycles >> 20),
        _ => format!("{}G", cycles >> 30),
    }
}

fn thousandths(value: u64) -> String {
    format!("{}.{:03}", value / 1_000, value % 1_000)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_monotonic_and_stays_in_the_chart() {
        let places: Vec<u64> = [0, 1, 2, 3, 100, 1_000, 65_536]
            .iter()
            .map(|&cycles| position(cycles, WIDTH, 16))
            .collect();
        assert!(places.is_sorted(), "{places:?}");
        assert_eq!(places.last(), Some(&WIDTH));
        assert_eq!(escape("a<b & \"c\""), "a&lt;b &amp; &quot;c&quot;");
    }
}
