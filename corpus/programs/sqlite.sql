-- A schema, rows from recursive queries, joins, aggregates, windows, indexes, transactions, triggers, text functions.
PRAGMA journal_mode = MEMORY;
CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT, since INTEGER);
CREATE TABLE product(id INTEGER PRIMARY KEY, name TEXT UNIQUE, price REAL CHECK(price > 0));
CREATE TABLE sale(id INTEGER PRIMARY KEY, customer INTEGER REFERENCES customer, product INTEGER REFERENCES product, amount INTEGER, day INTEGER);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
INSERT INTO customer SELECT i, printf('customer %04d', i * 7919 % 1000), 'city ' || char(65 + i * 31 % 26), 1990 + i % 30 FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
INSERT INTO product SELECT i, hex(i * 2654435761 % 1048576), 0.25 + (i * 37 % 400) / 4.0 FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
INSERT INTO sale SELECT i, 1 + i * 7907 % 1000, 1 + i * i % 200, 1 + i % 9, i / 60 FROM n;
COMMIT;
CREATE INDEX sale_customer ON sale(customer);
CREATE INDEX sale_day ON sale(day, product);
ANALYZE;
SELECT count(*), sum(amount), min(day), max(day) FROM sale;
SELECT c.city, count(*) AS sales, round(sum(s.amount * p.price), 2) AS turnover
  FROM sale s JOIN customer c ON c.id = s.customer JOIN product p ON p.id = s.product
  GROUP BY c.city HAVING sales > 700 ORDER BY turnover DESC, c.city LIMIT 8;
SELECT name, price, rank() OVER (ORDER BY price DESC), round(avg(price) OVER (ORDER BY id ROWS BETWEEN 3 PRECEDING AND CURRENT ROW), 3)
  FROM product WHERE id % 40 = 0 ORDER BY id;
SELECT day, group_concat(DISTINCT product) FROM sale WHERE day BETWEEN 100 AND 102 AND amount = 9 GROUP BY day;
SELECT c.name FROM customer c WHERE NOT EXISTS (SELECT 1 FROM sale s WHERE s.customer = c.id AND s.amount > 8) ORDER BY 1 LIMIT 5;
EXPLAIN QUERY PLAN SELECT * FROM sale WHERE customer = 5 AND day > 3;
CREATE TABLE log(what TEXT);
CREATE TRIGGER watch AFTER UPDATE OF price ON product BEGIN INSERT INTO log VALUES (old.name || ': ' || old.price || ' -> ' || new.price); END;
UPDATE product SET price = price * 1.1 WHERE price < 4;
SELECT * FROM log ORDER BY 1;
SAVEPOINT before;
DELETE FROM sale WHERE day % 2 = 0;
SELECT count(*) FROM sale;
ROLLBACK TO before;
SELECT count(*) FROM sale;
CREATE VIEW busy AS SELECT customer, count(*) AS n FROM sale GROUP BY customer;
SELECT max(n), min(n) FROM busy;
SELECT upper(substr('wavelock', 1, 4)), instr('haystack', 'st'), replace('a-b-c', '-', '+'), quote('it''s'), unicode('é'), length(zeroblob(10)), typeof(1.5);
SELECT date(0, 'unixepoch', '+1 month'), strftime('%Y-%j', 86400 * 400, 'unixepoch'), julianday('2000-01-01');
SELECT json_extract('{"a":[1,{"b":2}]}', '$.a[1].b'), json_group_array(value) FROM json_each('[3,1,2]');
SELECT 7 / 2, 7 % 3, -7 / 2, 1e308 * 10, 9223372036854775807 + 1, 0.1 + 0.2, abs(-5), 5 & 3, 5 << 2;
SELECT sum(length(name)) FROM (SELECT name FROM customer UNION SELECT name FROM product);
.mode column
SELECT id, name, city FROM customer WHERE id < 4;
.mode json
SELECT id, price FROM product WHERE id < 3;
SELECT no_such_column FROM sale;
PRAGMA integrity_check;
