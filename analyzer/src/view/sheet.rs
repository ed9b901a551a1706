//! Tables and plots as one page that needs nothing else, for reports whose figures come from elsewhere.

use askama::Template;
use radrm_text::clean;

use super::escaped::escaped;

/// A page of tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    /// Its heading.
    pub title: String,
    /// Remarks on all of it, a sentence each.
    pub notes: Vec<String>,
    /// Its sections.
    pub parts: Vec<Part>,
}

/// A table, with a plot of it where there is one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// Its heading.
    pub title: String,
    /// Its columns.
    pub titles: Vec<String>,
    /// Number of columns, at the left, that are names.
    pub names: usize,
    /// Its rows, a cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// Explanations, a sentence each.
    pub notes: Vec<String>,
    /// A picture of some of its columns. It has no figure that is not in the table.
    pub plot: Option<Plot>,
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// Text that it shows.
    pub text: String,
    /// Sort key; `None` sorts it by its text.
    pub value: Option<f64>,
}

/// Points by two figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// Titles of the horizontal and the vertical axis.
    pub axes: [String; 2],
    /// The points.
    pub points: Vec<Point>,
}

/// A point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Its name.
    pub name: String,
    /// Its figures.
    pub at: [f64; 2],
    /// The same as text.
    pub texts: [String; 2],
    /// It is joined by a line with the others that are.
    pub on_front: bool,
}

/// The size of a picture, and what is left of it around the points.
const SIZE: [f64; 2] = [640.0, 320.0];
const LEFT: f64 = 110.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 56.0;

/// A plot as it is drawn.
struct Picture {
    label: String,
    axes: [String; 2],
    /// The texts at the lowest and the highest value of each axis.
    ends: [[String; 2]; 2],
    dots: Vec<Dot>,
    front: String,
}

struct Dot {
    x: String,
    y: String,
    text: String,
    on_front: bool,
}

struct Section<'p> {
    part: &'p Part,
    picture: Option<Picture>,
}

#[derive(Template)]
#[template(path = "sheet.html")]
struct Page<'s> {
    title: &'s str,
    notes: &'s [String],
    sections: Vec<Section<'s>>,
}

/// The page: one file, no other resource, light and dark. Without scripts it has every figure.
#[must_use]
pub fn sheet_html(sheet: &Sheet) -> String {
    let section = |part| Section { part, picture: picture(part) };
    let sections = sheet.parts.iter().map(section).collect();
    let page = Page { title: &sheet.title, notes: &sheet.notes, sections };
    // Rendering to a string fails only if a value's Display fails; none does.
    page.render().unwrap_or_else(|error| format!("<!doctype html><p>{}</p>", escaped(&error.to_string())))
}

/// `None` where there is nothing to be seen.
fn picture(part: &Part) -> Option<Picture> {
    let plot = part.plot.as_ref()?;
    let points: Vec<&Point> =
        plot.points.iter().filter(|point| point.at.iter().all(|value| value.is_finite())).collect();
    let ordered = |axis: usize| {
        let mut by: Vec<&Point> = points.clone();
        by.sort_by(|a, b| a.at[axis].total_cmp(&b.at[axis]));
        by
    };
    let by = [ordered(0), ordered(1)];
    let [[left, right], [low, high]] = [[by[0].first()?, by[0].last()?], [by[1].first()?, by[1].last()?]];
    let place =
        |value: f64, least: f64, most: f64| if most > least { (value - least) / (most - least) } else { 0.5 };
    let x = |point: &Point| LEFT + place(point.at[0], left.at[0], right.at[0]) * (SIZE[0] - LEFT - RIGHT);
    let y = |point: &Point| {
        SIZE[1] - BOTTOM - place(point.at[1], low.at[1], high.at[1]) * (SIZE[1] - TOP - BOTTOM)
    };
    let dot = |point: &&Point| Dot {
        x: format!("{:.1}", x(point)),
        y: format!("{:.1}", y(point)),
        text: format!("{}: {}, {}", clean(&point.name), point.texts[0], point.texts[1]),
        on_front: point.on_front,
    };
    let front =
        by[0].iter().filter(|point| point.on_front).map(|point| format!("{:.1},{:.1}", x(point), y(point)));
    let names: Vec<_> = by[0].iter().filter(|point| point.on_front).map(|point| clean(&point.name)).collect();
    Some(Picture {
        label: format!(
            "{} configurations by {} and {}; no other beats {}",
            points.len(),
            plot.axes[0],
            plot.axes[1],
            names.join("; ")
        ),
        axes: plot.axes.clone(),
        ends: [[&left.texts[0], &right.texts[0]], [&low.texts[1], &high.texts[1]]]
            .map(|ends| ends.map(Clone::clone)),
        dots: points.iter().map(dot).collect(),
        front: front.collect::<Vec<_>>().join(" "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(name: &str, at: [f64; 2], on_front: bool) -> Point {
        Point { name: name.into(), at, texts: at.map(|value| format!("{value}")), on_front }
    }

    #[test]
    fn points_lie_where_their_figures_are_and_names_are_no_markup() {
        let points = vec![
            point("<a>", [1.0, 9.0], true),
            point("b", [3.0, 1.0], true),
            point("c", [2.0, 9.0], false),
            point("none", [f64::NAN, 1.0], true),
        ];
        let part = Part { plot: Some(Plot { axes: ["x".into(), "y".into()], points }), ..Part::default() };
        let found = picture(&part).unwrap();
        let dots: Vec<_> =
            found.dots.iter().map(|dot| (dot.x.as_str(), dot.y.as_str(), dot.on_front)).collect();
        assert_eq!(dots, [("110.0", "24.0", true), ("610.0", "264.0", true), ("360.0", "24.0", false)]);
        assert_eq!(found.front, "110.0,24.0 610.0,264.0");
        let html = sheet_html(&Sheet { title: "t <u>".into(), parts: vec![part], ..Sheet::default() });
        assert!(!html.contains("<a>") && !html.contains("<u>") && html.contains("<svg"), "{html}");
        assert!(picture(&Part { plot: Some(Plot::default()), ..Part::default() }).is_none());
    }
}
