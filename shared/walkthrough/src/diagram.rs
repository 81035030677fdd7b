//! State machines as pictures: SVG for the page, Mermaid for the README.
//!
//! The layout is layered, left to right. A state stands one layer behind the last state that leads
//! to it; transitions that lead back do not count. Transitions between the same two states share
//! one arrow. An arrow between neighbouring layers is a curve in the gap between them; one that
//! skips a layer takes a lane of its own below everything. Where arrows leave a state, each has as
//! much room as its label needs, so that parallel labels do not meet.

use crate::archetype::Machine;
use crate::html::escape;
use crate::terminal::wrapped;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// `stateDiagram-v2` blocks, one for each machine.
pub fn mermaid(machines: &[Machine]) -> String {
    let blocks = machines.iter().map(|machine| {
        let mut out = format!("**{}**\n\n```mermaid\nstateDiagram-v2\n", machine.entity);
        for state in machine.states {
            if mermaid_id(state) != *state {
                let _ = writeln!(
                    out,
                    "    state \"{}\" as {}",
                    state.replace('"', "'"),
                    mermaid_id(state)
                );
            }
        }
        for step in machine.transitions {
            let from = if step.from.is_empty() {
                "[*]".into()
            } else {
                mermaid_id(step.from)
            };
            let _ = writeln!(
                out,
                "    {from} --> {}: {}",
                mermaid_id(step.to),
                step.action
            );
        }
        out + "```\n"
    });
    blocks.collect::<Vec<_>>().join("\n")
}

fn mermaid_id(state: &str) -> String {
    state
        .chars()
        .map(|c| {
            if c.is_alphanumeric() || c == '_' {
                c
            } else {
                '_'
            }
        })
        .collect()
}

const LINE: f64 = 16.0;
const PER_CHAR: f64 = 6.9;
const PER_STATE_CHAR: f64 = 8.8;
const LEAST_HEIGHT: f64 = 44.0;
const DOT: f64 = 14.0;
const BETWEEN_ROWS: f64 = 34.0;
const LOOP: f64 = 30.0;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Left,
    Right,
}

struct Node {
    name: &'static str,
    layer: usize,
    x: f64,
    y: f64,
    width: f64,
    height: f64,
    /// Lines of the label of its loop.
    own: usize,
}

struct Edge {
    from: usize,
    to: usize,
    lines: Vec<String>,
}

impl Edge {
    fn width(&self) -> f64 {
        let longest = self
            .lines
            .iter()
            .map(|line| line.chars().count())
            .max()
            .unwrap_or(0);
        longest as f64 * PER_CHAR
    }

    fn height(&self) -> f64 {
        self.lines.len() as f64 * LINE
    }
}

/// One machine as SVG, to stand inside a page that has the class names. `id` sets it apart from
/// the others of the page.
pub fn svg(machine: &Machine, id: &str) -> String {
    Layout::of(machine).draw(machine, id)
}

struct Layout {
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    /// Where each edge touches its nodes.
    ports: BTreeMap<(usize, bool), (f64, f64)>,
    /// Left and right of the gap behind each layer.
    gaps: Vec<(f64, f64)>,
    bottom: f64,
}

impl Layout {
    fn of(machine: &Machine) -> Self {
        let (mut nodes, edges) = graph(machine);
        layers(&mut nodes, &edges);
        let mut layout = Self {
            nodes,
            edges,
            ports: BTreeMap::new(),
            gaps: Vec::new(),
            bottom: 0.0,
        };
        layout.sizes();
        layout.places();
        layout.find_ports();
        layout
    }

    fn span(&self, edge: &Edge) -> isize {
        self.nodes[edge.to].layer as isize - self.nodes[edge.from].layer as isize
    }

    /// Which sides an arrow leaves from and arrives at; `None` for a loop.
    fn sides(&self, edge: &Edge) -> Option<(Side, Side)> {
        match self.span(edge) {
            _ if edge.from == edge.to => None,
            0 => Some((Side::Right, Side::Right)),
            1.. => Some((Side::Right, Side::Left)),
            _ => Some((Side::Left, Side::Right)),
        }
    }

    /// The ends of arrows at one side of a node: the edge, and whether it is where it leaves.
    fn ends(&self, node: usize, side: Side) -> Vec<(usize, bool)> {
        let mut ends = Vec::new();
        for (at, edge) in self.edges.iter().enumerate() {
            let Some((leaves, arrives)) = self.sides(edge) else {
                continue;
            };
            if edge.from == node && leaves == side {
                ends.push((at, true));
            }
            if edge.to == node && arrives == side {
                ends.push((at, false));
            }
        }
        ends
    }

    fn sizes(&mut self) {
        for node in 0..self.nodes.len() {
            let room = |side| -> f64 {
                let ends = self.ends(node, side);
                ends.iter()
                    .map(|(edge, _)| self.edges[*edge].height() + 10.0)
                    .sum()
            };
            let room = room(Side::Left).max(room(Side::Right));
            let node = &mut self.nodes[node];
            if !node.name.is_empty() {
                node.width = (node.name.chars().count() as f64 * PER_STATE_CHAR + 32.0).max(84.0);
                node.height = LEAST_HEIGHT.max(room + 8.0);
            }
        }
    }

    fn places(&mut self) {
        let last = self.nodes.iter().map(|node| node.layer).max().unwrap_or(0);
        let mut left = 8.0;
        for layer in 0..=last {
            let mut here: Vec<usize> = (0..self.nodes.len())
                .filter(|at| self.nodes[*at].layer == layer)
                .collect();
            // Next to where its arrows come from, so that fewer cross.
            let pull = |node: usize| {
                let from = self
                    .edges
                    .iter()
                    .filter(|edge| edge.to == node && self.nodes[edge.from].layer < layer);
                let ys: Vec<f64> = from
                    .map(|edge| self.nodes[edge.from].y + self.nodes[edge.from].height / 2.0)
                    .collect();
                if ys.is_empty() {
                    0.0
                } else {
                    ys.iter().sum::<f64>() / ys.len() as f64
                }
            };
            let pulls: Vec<f64> = (0..self.nodes.len()).map(pull).collect();
            here.sort_by(|one, other| pulls[*one].total_cmp(&pulls[*other]));
            let above = |node: &Node| {
                if node.own > 0 {
                    LOOP + node.own as f64 * LINE
                } else {
                    0.0
                }
            };
            let heights: f64 = here
                .iter()
                .map(|at| self.nodes[*at].height + above(&self.nodes[*at]))
                .sum();
            let total = heights + BETWEEN_ROWS * here.len().saturating_sub(1) as f64;
            let width = here
                .iter()
                .map(|at| self.nodes[*at].width)
                .fold(0.0, f64::max);
            // The boxes are centred on one line; a lone box's loop stands above that line.
            let mut y = match here.as_slice() {
                [one] => -self.nodes[*one].height / 2.0 - above(&self.nodes[*one]),
                _ => -total / 2.0,
            };
            for at in here {
                let node = &mut self.nodes[at];
                node.y = y + above(node);
                node.x = left + (width - node.width) / 2.0;
                y = node.y + node.height + BETWEEN_ROWS;
            }
            let right = left + width;
            let gap = self.gap_width(layer);
            self.gaps.push((right, right + gap));
            left = right + gap;
        }
        let top = self.nodes.iter().map(|node| {
            node.y
                - if node.own > 0 {
                    LOOP + node.own as f64 * LINE
                } else {
                    0.0
                }
        });
        let shift = 12.0 - top.fold(f64::INFINITY, f64::min);
        for node in &mut self.nodes {
            node.y += shift;
        }
        self.bottom = self
            .nodes
            .iter()
            .map(|node| node.y + node.height)
            .fold(0.0, f64::max);
    }

    fn gap_width(&self, layer: usize) -> f64 {
        let mut labels: f64 = 0.0;
        let mut lanes = 0.0;
        let mut any = false;
        for edge in &self.edges {
            let (one, other) = (self.nodes[edge.from].layer, self.nodes[edge.to].layer);
            let (low, high) = (one.min(other), one.max(other));
            if edge.from == edge.to {
                continue;
            }
            if high - low <= 1 && low == layer {
                labels = labels.max(edge.width());
                any = true;
            }
            if high - low > 1 && (low == layer || high == layer + 1) {
                lanes += 14.0;
                any = true;
            }
        }
        let last = self.nodes.iter().all(|node| node.layer <= layer);
        match (any, last) {
            (false, true) => 0.0,
            _ => labels + lanes + 56.0,
        }
    }

    fn find_ports(&mut self) {
        for at in 0..self.nodes.len() {
            for side in [Side::Left, Side::Right] {
                let mut ends = self.ends(at, side);
                // In the order of what is at the other end; what goes down to a lane comes last.
                let towards = |(edge, leaves): &(usize, bool)| {
                    let edge = &self.edges[*edge];
                    let far = if *leaves { edge.to } else { edge.from };
                    let lane = self.span(edge).abs() > 1;
                    if lane {
                        f64::INFINITY
                    } else {
                        self.nodes[far].y + self.nodes[far].height / 2.0
                    }
                };
                ends.sort_by(|one, other| towards(one).total_cmp(&towards(other)));
                let rooms: Vec<f64> = ends
                    .iter()
                    .map(|(edge, _)| self.edges[*edge].height() + 10.0)
                    .collect();
                let node = &self.nodes[at];
                let x = if side == Side::Left {
                    node.x
                } else {
                    node.x + node.width
                };
                let mut y = node.y + node.height / 2.0 - rooms.iter().sum::<f64>() / 2.0;
                for (end, room) in std::iter::zip(ends, rooms) {
                    let port = if node.name.is_empty() {
                        node.y + node.height / 2.0
                    } else {
                        y + room / 2.0
                    };
                    self.ports.insert(end, (x, port));
                    y += room;
                }
            }
        }
    }

    /// The arrows, their labels, and how far down the lanes go.
    fn arrows(&self, id: &str) -> (String, Labels, f64) {
        let mut arrows = String::new();
        let mut labels = Labels::new(&self.nodes);
        let mut lane = self.bottom + 26.0;
        let mut channels = vec![0.0; self.gaps.len()];
        for (at, edge) in self.edges.iter().enumerate() {
            let path = if edge.from == edge.to {
                let node = &self.nodes[edge.from];
                let (x, y) = (node.x + node.width / 2.0, node.y);
                labels.put(edge, x, y - LOOP - edge.height() / 2.0);
                format!(
                    "M{} {y}C{} {} {} {} {} {}",
                    x - 16.0,
                    x - 24.0,
                    y - LOOP * 1.2,
                    x + 24.0,
                    y - LOOP * 1.2,
                    x + 16.0,
                    y - 1.0
                )
            } else {
                let (start, end) = (self.ports[&(at, true)], self.ports[&(at, false)]);
                match self.span(edge) {
                    1 | -1 => {
                        let bend = (end.0 - start.0) / 2.0;
                        let curve = [start, (start.0 + bend, start.1), (end.0 - bend, end.1), end];
                        labels.along(edge, curve);
                        cubic(curve)
                    }
                    0 => {
                        let out = start.0.max(end.0) + edge.width() / 2.0 + 40.0;
                        let curve = [start, (out, start.1), (out, end.1), end];
                        labels.along(edge, curve);
                        cubic(curve)
                    }
                    _ => {
                        let forward = self.span(edge) > 0;
                        let (from, to) = (self.nodes[edge.from].layer, self.nodes[edge.to].layer);
                        let (first, second) = if forward {
                            (from, to - 1)
                        } else {
                            (from - 1, to)
                        };
                        let mut channel = |gap: usize, at_left: bool| {
                            channels[gap] += 14.0;
                            if at_left {
                                self.gaps[gap].0 + 6.0 + channels[gap]
                            } else {
                                self.gaps[gap].1 - 10.0 - channels[gap]
                            }
                        };
                        let (one, other) = (channel(first, forward), channel(second, !forward));
                        lane += edge.height() / 2.0;
                        let path = cornered(&[
                            start,
                            (one, start.1),
                            (one, lane),
                            (other, lane),
                            (other, end.1),
                            end,
                        ]);
                        labels.put(edge, (one + other) / 2.0, lane);
                        lane += edge.height() / 2.0 + 12.0;
                        path
                    }
                }
            };
            let _ = write!(
                arrows,
                "<path class=\"arrow\" d=\"{path}\" marker-end=\"url(#{id}-head)\"/>"
            );
        }
        (arrows, labels, lane)
    }

    fn draw(&self, machine: &Machine, id: &str) -> String {
        let (arrows, labels, lane) = self.arrows(id);
        let mut states = String::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let (x, y) = (node.x + node.width / 2.0, node.y + node.height / 2.0);
            if node.name.is_empty() {
                let _ = write!(
                    states,
                    "<circle class=\"start\" cx=\"{x}\" cy=\"{y}\" r=\"{}\"/>",
                    DOT / 2.0 - 1.0
                );
                continue;
            }
            let ends = !self
                .edges
                .iter()
                .any(|edge| edge.from == at && edge.to != at);
            let class = if ends { "state final" } else { "state" };
            let _ = write!(
                states,
                "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"10\"/>\
                 <text class=\"name\" x=\"{x}\" y=\"{}\">{}</text>",
                node.x,
                node.y,
                node.width,
                node.height,
                y + 5.0,
                escape(node.name)
            );
        }
        let right = self.gaps.last().map_or(0.0, |gap| gap.1) + 8.0;
        let right = labels
            .placed
            .iter()
            .map(|placed| placed.right() + 8.0)
            .fold(right, f64::max);
        let height = if lane > self.bottom + 26.0 {
            lane + 4.0
        } else {
            self.bottom + 12.0
        };
        let left = labels
            .placed
            .iter()
            .map(|placed| placed.left() - 8.0)
            .fold(0.0, f64::min);
        format!(
            "<svg role=\"img\" aria-label=\"States of {entity}\" viewBox=\"{left} 0 {width} {height}\" width=\"{width}\" height=\"{height}\" style=\"min-width:{least}px\">\
             <defs><marker id=\"{id}-head\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto-start-reverse\">\
             <path class=\"head\" d=\"M0 0L10 5L0 10z\"/></marker></defs>{arrows}{states}{texts}</svg>",
            entity = escape(machine.entity),
            width = right - left,
            // A little wider than its card, it shrinks; below this nobody could read it, so it scrolls.
            least = (right - left) * 0.75,
            texts = labels.texts,
        )
    }
}

/// The states, the dot before creation, and one edge for each pair that has transitions.
fn graph(machine: &Machine) -> (Vec<Node>, Vec<Edge>) {
    let blank = |name| Node {
        name,
        layer: 0,
        x: 0.0,
        y: 0.0,
        width: DOT,
        height: DOT,
        own: 0,
    };
    let mut nodes: Vec<Node> = machine.states.iter().map(|state| blank(*state)).collect();
    if machine.transitions.iter().any(|step| step.from.is_empty()) {
        nodes.push(blank(""));
    }
    let place = |name: &str| nodes.iter().position(|node| node.name == name);
    let mut edges: Vec<(usize, usize, Vec<&str>)> = Vec::new();
    for step in machine.transitions {
        let (Some(from), Some(to)) = (place(step.from), place(step.to)) else {
            continue;
        };
        match edges.iter_mut().find(|edge| (edge.0, edge.1) == (from, to)) {
            Some(edge) if edge.2.contains(&step.action) => {}
            Some(edge) => edge.2.push(step.action),
            None => edges.push((from, to, vec![step.action])),
        }
    }
    let edges: Vec<Edge> = edges
        .into_iter()
        .map(|(from, to, actions)| Edge {
            from,
            to,
            lines: wrapped(&actions.join(",\n"), 24),
        })
        .collect();
    for edge in edges.iter().filter(|edge| edge.from == edge.to) {
        nodes[edge.from].own = edge.lines.len();
    }
    (nodes, edges)
}

/// Puts each node one layer behind the last that leads to it. An edge that leads back to where
/// the walk came from would make that endless, so those are left out.
fn layers(nodes: &mut [Node], edges: &[Edge]) {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    fn visit(node: usize, edges: &[Edge], marks: &mut [Mark], forward: &mut Vec<(usize, usize)>) {
        marks[node] = Mark::Open;
        for edge in edges.iter().filter(|edge| edge.from == node) {
            if marks[edge.to] != Mark::Open {
                forward.push((edge.from, edge.to));
            }
            if marks[edge.to] == Mark::New {
                visit(edge.to, edges, marks, forward);
            }
        }
        marks[node] = Mark::Done;
    }
    let mut marks = vec![Mark::New; nodes.len()];
    let mut forward = Vec::new();
    // The dot is the last node; everything begins there.
    let dot = nodes.iter().position(|node| node.name.is_empty());
    for node in dot.into_iter().chain(0..nodes.len()) {
        if marks[node] == Mark::New {
            visit(node, edges, &mut marks, &mut forward);
        }
    }
    for _ in 0..nodes.len() {
        for (from, to) in &forward {
            nodes[*to].layer = nodes[*to].layer.max(nodes[*from].layer + 1);
        }
    }
}

type Point = (f64, f64);

fn cubic([a, b, c, d]: [Point; 4]) -> String {
    format!(
        "M{} {}C{} {} {} {} {} {}",
        a.0, a.1, b.0, b.1, c.0, c.1, d.0, d.1
    )
}

/// A line with rounded corners.
fn cornered(points: &[Point]) -> String {
    let towards = |from: Point, to: Point, by: f64| {
        let length = ((to.0 - from.0).powi(2) + (to.1 - from.1).powi(2))
            .sqrt()
            .max(0.1);
        let by = by.min(length / 2.0) / length;
        (from.0 + (to.0 - from.0) * by, from.1 + (to.1 - from.1) * by)
    };
    let mut path = format!("M{} {}", points[0].0, points[0].1);
    for at in 1..points.len() - 1 {
        let corner = points[at];
        let (before, after) = (
            towards(corner, points[at - 1], 8.0),
            towards(corner, points[at + 1], 8.0),
        );
        let _ = write!(
            path,
            "L{} {}Q{} {} {} {}",
            before.0, before.1, corner.0, corner.1, after.0, after.1
        );
    }
    let end = points[points.len() - 1];
    let _ = write!(path, "L{} {}", end.0, end.1);
    path
}

/// A rectangle by its centre.
struct Placed {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Placed {
    fn left(&self) -> f64 {
        self.x - self.width / 2.0
    }

    fn right(&self) -> f64 {
        self.x + self.width / 2.0
    }

    /// How much of the two lies on top of each other.
    fn overlap(&self, other: &Self) -> f64 {
        let across = self.right().min(other.right()) - self.left().max(other.left());
        let bottom = (self.y + self.height / 2.0).min(other.y + other.height / 2.0);
        let top = (self.y - self.height / 2.0).max(other.y - other.height / 2.0);
        across.max(0.0) * (bottom - top).max(0.0)
    }
}

struct Labels {
    placed: Vec<Placed>,
    boxes: Vec<Placed>,
    texts: String,
}

impl Labels {
    fn new(nodes: &[Node]) -> Self {
        let boxes = nodes.iter().map(|node| Placed {
            x: node.x + node.width / 2.0,
            y: node.y + node.height / 2.0,
            width: node.width,
            height: node.height,
        });
        Self {
            placed: Vec::new(),
            boxes: boxes.collect(),
            texts: String::new(),
        }
    }

    /// Somewhere along the curve: in the middle, or else where it covers least of the others.
    fn along(&mut self, edge: &Edge, [a, b, c, d]: [Point; 4]) {
        let at = |t: f64| {
            let u = 1.0 - t;
            let mix = |a: f64, b: f64, c: f64, d: f64| {
                u * u * u * a + 3.0 * u * u * t * b + 3.0 * u * t * t * c + t * t * t * d
            };
            (mix(a.0, b.0, c.0, d.0), mix(a.1, b.1, c.1, d.1))
        };
        let covered = |(x, y): Point| -> f64 {
            let label = Placed {
                x,
                y,
                width: edge.width(),
                height: edge.height(),
            };
            self.placed
                .iter()
                .chain(&self.boxes)
                .map(|other| label.overlap(other))
                .sum()
        };
        let places = [0.5, 0.42, 0.58, 0.34, 0.66, 0.28, 0.72].map(at);
        let best = places
            .into_iter()
            .min_by(|one, other| covered(*one).total_cmp(&covered(*other)));
        if let Some((x, y)) = best {
            self.put(edge, x, y);
        }
    }

    fn put(&mut self, edge: &Edge, x: f64, y: f64) {
        self.placed.push(Placed {
            x,
            y,
            width: edge.width(),
            height: edge.height(),
        });
        let first = y - edge.height() / 2.0 + 12.0;
        // Behind the words, so that the arrow does not show between them.
        let (left, top) = (x - edge.width() / 2.0 - 2.0, y - edge.height() / 2.0);
        let (width, height) = (edge.width() + 4.0, edge.height());
        let _ = write!(
            self.texts,
            "<rect class=\"under\" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\"/>"
        );
        let _ = write!(
            self.texts,
            "<text class=\"action\" x=\"{x}\" y=\"{first}\">"
        );
        for (at, line) in edge.lines.iter().enumerate() {
            let down = if at == 0 { 0.0 } else { LINE };
            let _ = write!(
                self.texts,
                "<tspan x=\"{x}\" dy=\"{down}\">{}</tspan>",
                escape(line)
            );
        }
        self.texts.push_str("</text>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archetype::Transition;

    const fn step(from: &'static str, to: &'static str, action: &'static str) -> Transition {
        Transition { from, to, action }
    }

    /// With loops, parallels, ways back, ways past a layer, and crossings.
    const MACHINES: &[Machine] = &[
        Machine {
            entity: "Seat",
            states: &["AVAILABLE", "HELD", "BOOKED"],
            transitions: &[
                step("", "AVAILABLE", "publish event"),
                step("AVAILABLE", "HELD", "hold seat"),
                step("HELD", "AVAILABLE", "release hold"),
                step("HELD", "AVAILABLE", "expire hold"),
                step("HELD", "HELD", "extend hold"),
                step("HELD", "BOOKED", "confirm booking"),
                step("BOOKED", "AVAILABLE", "cancel booking"),
                step("AVAILABLE", "BOOKED", "sell at the door"),
            ],
        },
        Machine {
            entity: "Job",
            states: &["READY", "RUNNING", "DONE", "DEAD", "CANCELLED"],
            transitions: &[
                step("", "READY", "schedule job"),
                step("READY", "RUNNING", "claim job"),
                step("RUNNING", "READY", "retry later"),
                step("RUNNING", "READY", "lease expires"),
                step("RUNNING", "RUNNING", "heartbeat"),
                step("RUNNING", "DONE", "complete job"),
                step("RUNNING", "DEAD", "give up"),
                step("READY", "CANCELLED", "cancel"),
                step("RUNNING", "CANCELLED", "cancel"),
                step("DEAD", "READY", "revive"),
            ],
        },
        Machine {
            entity: "Crossing",
            states: &["A", "B", "C", "D"],
            transitions: &[
                step("", "A", "make a"),
                step("", "B", "make b"),
                step("A", "C", "a to c"),
                step("A", "D", "a to d"),
                step("B", "C", "b to c"),
                step("B", "D", "b to d"),
            ],
        },
    ];

    #[test]
    fn no_label_lies_on_another_or_on_a_state() {
        for machine in MACHINES {
            let layout = Layout::of(machine);
            let (_, labels, _) = layout.arrows("x");
            assert_eq!(labels.placed.len(), layout.edges.len());
            for (at, label) in labels.placed.iter().enumerate() {
                let others = labels.placed[..at].iter().chain(&labels.boxes);
                let covered: f64 = others.map(|other| label.overlap(other)).sum();
                assert_eq!(
                    covered, 0.0,
                    "{}: {:?}",
                    machine.entity, layout.edges[at].lines
                );
            }
        }
    }

    #[test]
    fn a_state_stands_behind_those_that_lead_to_it() {
        let machine = MACHINES[1];
        let layout = Layout::of(&machine);
        let of = |name| {
            layout
                .nodes
                .iter()
                .find(|node| node.name == name)
                .map(|node| node.layer)
        };
        assert_eq!(of("READY"), Some(1));
        assert_eq!(of("RUNNING"), Some(2));
        assert_eq!(
            (of("DONE"), of("DEAD"), of("CANCELLED")),
            (Some(3), Some(3), Some(3))
        );
    }

    #[test]
    fn mermaid_gives_an_id_to_a_state_with_a_space() {
        const STEPS: &[Transition] = &[step("", "ON HOLD", "begin")];
        let machine = Machine {
            entity: "X",
            states: &["ON HOLD"],
            transitions: STEPS,
        };
        let text = mermaid(&[machine]);
        assert!(
            text.contains("    state \"ON HOLD\" as ON_HOLD\n    [*] --> ON_HOLD: begin\n"),
            "{text}"
        );
    }
}
